"""What a model is not shown decides nothing: a law for loops (SPEC R16.3, R16.6).

A model that is any function of the bytes it was shown - drawn at random, over all that the composed schema admits, with
references to whatever it was told of - is asked the same and starts the same effects where what others wrote differs in
value, and not in size or fate.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from random import Random
from typing import Annotated, Any

import pytest

from acts_celery import Content, LocalClient, Run, activity, local, random_answers
from tests.few import few

WORDS = ["YAK", "EMU", "GNU", "ELK"]
"""What others write is made of these, names of fields included; nothing else in a run holds them."""
JOINING = ("set", "push", "concat")
_PLACE = re.compile(r"(?:Not shown: |## Data: )(†[^\s,]+)")
written: dict[str, Any] = {}
started: list[tuple[Any, ...]] = []
_runs = count()


@activity(untrusted="mail")
def read_mail(n: int) -> dict[str, Any]:
    """Reads what others wrote."""
    return {"text": f"{written['word']} {n}", "list": [written["word"]], written["word"]: 1}


@activity(untrusted={"*.text": ["shop"], "*": []})
def read_shelf() -> list[dict[str, Any]]:
    """Reads texts of others, with numbers that are nobody's."""
    return [{"id": number, "text": [written["word"]]} for number in (1, 2)]


@activity
def think_of(value: Any) -> Any:
    """Gives back what it is given."""
    return {"of": value}


@activity
def refuse_value(value: Any) -> None:
    """Fails, and says why, also by the type of its error."""
    raise type(re.sub(r"\W", "_", f"Not{value}")[:40], (Exception,), {})(f"cannot be: {value}")


@activity
def take_number(value: Any) -> int:
    """Takes a whole number only, in each element."""
    return value  # type: ignore[no-any-return]


@activity(effects=True)
def pay_account(account: Any, note: Annotated[Any, Content] = None) -> str:
    """Sends money."""
    started.append(("pay", repr(account)))
    return "paid"


@activity(effects=True)
def close_account() -> str:
    """Closes the account."""
    started.append(("close",))
    return "closed"


TOOLS: list[Callable[..., Any]] = [
    read_mail,
    read_shelf,
    think_of,
    refuse_value,
    take_number,
    pay_account,
    close_account,
]
SEEDS = few(range(1000), 8)


def model_of(seed: int, send: Callable[[int], None]) -> Callable[..., dict[str, Any]]:
    """A model that answers at random, and puts what it was told of into its calls. `send` is called with the number of
    each request before that is answered.
    """
    at_random, numbers = random_answers(seed), count()

    def answer(messages: Sequence[Mapping[str, Any]], schema: Any, config: Mapping[str, Any]) -> dict[str, Any]:
        send(next(numbers))
        shown = "\n".join(str(message.get("content")) for message in messages)
        dice, places = Random(f"{seed} {shown}"), sorted(set(_PLACE.findall(shown)))
        places += [
            f"{place}.{end}" for place in places for end in ("text", "list.0", "lis", "nothing", "0.id", "0.0.id")
        ]
        found = at_random(messages, schema, config)
        if places and found.get("calls"):  # one that fails by what others wrote, and says so
            tool, place = dice.choice(["refuse_value", "take_number"]), dice.choice(places)
            found["calls"].append({"_tool": tool, "value": place, "_outputPath": f"†state.x{len(shown) % 5}"})
        if found.get("calls"):  # fields with and without a label, however they are joined
            how = {"_outputPath": f"†state.shelf{dice.randrange(2)}", "_outputMethod": dice.choice(JOINING)}
            found["calls"].append({"_tool": "read_shelf", **how})
        for call in found.get("calls", ()):
            for key in [key for key in call if not key.startswith("_")] if places else ():
                if dice.random() < 0.6 and key != "n" and call["_tool"] != "take_number":
                    call[key] = dice.choice([dice.choice(places), f"re: †{{{dice.choice(places)[1:]}}}"])
        if places and found.get("output") is not None and dice.random() < 0.5:
            found["output"] = dice.choice(places)
        return found

    return answer


@pytest.fixture(scope="module")
def client() -> Iterator[LocalClient]:
    with local(TOOLS) as running:
        yield running


def send_late(run: Run, seed: int, number: int, word: str) -> None:
    """Send what others wrote to a run under way: for its promise, or with its source."""
    late: list[dict[str, Any]] = [{"order": {"text": word, word: 1}}, {"data": {"order": word}}, {"order": [word]}]
    source = {} if seed % 3 else {"_trust": ["web"]}
    match (seed + number) % 4:
        case 0:
            run.send({"type": "input", **late[number % 3], "description": word, **source})
        case 1:
            run.send({"type": "state", "late": word, word: [word], "_trust": ["page"]})
        case 2 if seed % 2:
            run.send({"type": "state", "_instance": "①", "page": [word], "_trust": ["web"]})


def asked_and_started(client: LocalClient, seed: int, word: str, **config: Any) -> tuple[list[Any], list[Any]]:
    """What a model was asked in a run, and which effects were started, where others wrote this word."""
    written["word"] = word
    started.clear()
    name = f"law-{next(_runs)}"
    model = client.model(model_of(seed, lambda number: send_late(client.find(name), seed, number, word)))
    before = len(model.requests)
    page = {"type": "state", "page": {"text": word, word: [word]}, word: word, "_trust": ["web"]}
    page |= {"description": word, "schema": {"title": word, "properties": {word: {}}}} if seed % 5 == 0 else {}
    error = {"type": "error", "data": {"error": {"type": "ValueError", "message": word}}, "_trust": ["web"]}
    own = [{"type": "state", "_instance": name, "page": word, "_trust": ["web"]} for name in ("①", "②")]
    context: list[Any] = ["Do what is best.", {"type": "state", "page": "", "task": "pay"}, page]
    promised = {"title": word, "properties": {"order": {"description": word, "enum": [word]}}}
    context += [{"type": "input", "schema": promised, "_trust": ["web"]}] if seed % 3 else []
    context += [*([error] if seed % 3 == 0 else []), *(own if seed % 2 else [])]
    settings = {"ticks": 5, "calls": 60, "max_concurrency": 1, "trust": {"otherwise": "refuse", **config}}
    run = client.submit(context=context, schema={"type": "string"}, tools=TOOLS, config=settings, name=name)
    run.wait(timeout_seconds=60)
    asked = [[list(request.messages), request.schema] for request in model.requests[before:]]
    return asked, sorted(started)


@pytest.mark.parametrize("seed", SEEDS)
def test_r16_3_what_others_wrote_is_in_no_request_and_changes_no_effect(client: LocalClient, seed: int) -> None:
    first, second = WORDS[seed % 4], WORDS[(seed + 1) % 4]
    asked, effects = asked_and_started(client, seed, first)
    assert not [message for request in asked for message in request[0] if first in str(message)]
    assert (asked, effects) == asked_and_started(client, seed, second)


def test_r16_3_where_values_are_shown_nothing_with_effects_starts_once_they_were(client: LocalClient) -> None:
    seen = 0
    for seed in range(12):
        asked, effects = asked_and_started(client, seed, "YAK", show="value")
        seen += any("YAK" in str(request) for request in asked)
        assert not effects
    assert seen == 12
