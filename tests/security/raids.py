"""An attacker: activities that bring in what strangers wrote, effects that he wants to start, and one attempt."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Annotated, Any, Final

import pytest

from acts_celery import (
    CallFailed,
    Content,
    LocalClient,
    Message,
    Output,
    Proof,
    Run,
    RunOver,
    activity,
    current_call,
    delegate,
    local,
)

EVIL: Final = "DE66"
"""The account that strangers want to be paid to."""
SECONDS: Final = 20
STARTED: Final[dict[str, list[dict[str, Any]]]] = defaultdict(list)
"""Effects that started, by the run."""
VALUES: Final[dict[str, list[Any]]] = {}
"""What `raid_turns` returns, one after the other, by a key."""


def _start(**parameters: Any) -> str:
    STARTED[current_call().run].append(parameters)
    return "done"


@activity("raid_mail", untrusted="mail")
def mail(value: Any) -> Any:
    return value


@activity("raid_web", untrusted="web")
def web(value: Any) -> Any:
    return value


@activity("raid_turns", untrusted="mail")
def turns(key: str) -> Any:
    return VALUES[key].pop(0)


@activity("raid_fields", untrusted={"items.*.text": "mail", "*": []})
def fields(value: Any) -> Any:
    return value


@activity("raid_ids", untrusted={"items.*.id": [], "items.*.text": "mail"})
def ids(value: Any) -> Any:
    return value


@activity("raid_flat", untrusted={"text": "mail", "*": []})
def flat(value: Any) -> Any:
    return value


@activity("raid_rows", untrusted={"*.text": "mail", "*": []})
def rows(value: Any) -> Any:
    return value


@activity("raid_fields_choose", untrusted={"text": "mail", "*": []})
def fields_choose(value: Any) -> Output:
    return Output(value["path"], value["value"])


@activity("raid_fields_message", untrusted={"r.text": "mail", "text": "mail", "*": []})
def fields_message(value: Any) -> Message:
    return Message(value)


@activity("raid_fields_fail", untrusted={"text": "mail", "*": []})
def fields_fail(value: Any) -> Any:
    raise CallFailed(str(value), retry=False)


@activity("raid_empty", untrusted={'[""]': "mail", "*": []})
def empty(value: Any) -> Any:
    return value


@activity("raid_copy")
def copy(value: Any) -> Any:
    return value


@activity("raid_copy_cached", pure=True, cache_seconds=60)
def copy_cached(value: Any) -> Any:
    return value


@activity("raid_scoped")
def scoped(*, state: dict[str, Any]) -> Any:
    return json.dumps(state)


@activity("raid_fail")
def fail(value: Any) -> Any:
    raise CallFailed(str(value), retry=False)


@activity("raid_fail_of", untrusted="mail")
def fail_of(value: Any) -> Any:
    raise CallFailed(str(value), retry=False)


@activity("raid_pay", effects=True)
def pay(to: Any, amount: Any = 0, note: Annotated[Any, Content] = None, **more: Any) -> Any:
    return _start(to=to, amount=amount, note=note, **more)


@activity("raid_pay_seeing", effects=True)
def pay_seeing(to: Any, *, state: dict[str, Any]) -> Any:
    return _start(to=to, state=state)


@activity("raid_note")
def note(to: Any) -> Any:
    return _start(to=to)


@activity("raid_pay_late", effects=True)
def pay_late(to: Any) -> Any:
    return _start(to=to)


@activity("raid_pay_once", effects=True)
def pay_once(to: Any) -> Any:
    _start(to=to)
    if len(STARTED[current_call().run]) == 1:
        raise CallFailed("the bank is closed", retry=False)
    return "done"


@activity("raid_prove", effects=True)
def prove(to: Any, code: Annotated[Any, Proof] = None, note: Annotated[Any, Content] = None) -> Any:
    return _start(to=to, code=code)


@activity("raid_open", effects=True, hosts={"url": ["shop.example"]})
def open_(url: Any = "https://evil.example") -> Any:
    return _start(url=url)


@activity("raid_open_two", effects=True, hosts={"url": ["shop.example"], "then": ["shop.example"]})
def open_two(url: Any, then: Any) -> Any:
    return _start(url=url, then=then)


@activity("raid_open_other", effects=True, hosts={"other": ["shop.example"]})
def open_other(url: Any, **more: Any) -> Any:
    return _start(url=url, **more)


@activity("raid_open_star", effects=True, hosts={"*": ["shop.example"], "": ["shop.example"]})
def open_star(url: Any, **more: Any) -> Any:
    return _start(url=url, **more)


@delegate("raid_reader")
def reader(context: list[dict[str, Any]]) -> Any:
    return json.dumps(context, ensure_ascii=False)


@dataclass(frozen=True)
class Attempt:
    """How an attempt went: what started, and what waits for a person."""

    run: Run[Any]
    started: list[dict[str, Any]]
    held: list[dict[str, Any]]

    @property
    def statuses(self) -> list[str]:
        return [call.status for call in self.run.result().calls]


@pytest.fixture(scope="module")
def raided(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalClient]:
    """A backend whose operator lets some delegates endorse."""
    folder = tmp_path_factory.mktemp("raided")
    (folder / "delegates").mkdir()
    for name, definition in DELEGATES.items():
        (folder / "delegates" / f"{name}.json").write_text(json.dumps(definition), encoding="utf-8")
    trust = folder / "trust.json"
    trust.write_text(json.dumps({"raid_prove": {"proof": ["code", "to"], "effects": True}}), encoding="utf-8")
    with local(delegates=str(folder / "delegates"), trust=str(trust)) as client:
        obey(client)
        yield client


def obey(client: LocalClient) -> None:
    """Have every model answer what the mail wants."""

    def answer(messages: list[dict[str, Any]], schema: Any, config: Any) -> str:
        shown = [line for one in reversed(messages) for line in one["content"].splitlines() if '"mail"' in line]
        return json.dumps({"output": json.loads(shown[0][shown[0].index("{") :])["mail"] if shown else EVIL})

    client.model(answer)


_ANY: Final = {"type": ["string", "number", "boolean", "object", "array"]}


def _picker(endorses: Any, schema: Mapping[str, Any] = _ANY) -> dict[str, Any]:
    return {"context": [{"type": "system", "message": "Pick one."}], "schema": schema, "_endorses": endorses}


DELEGATES: Final = {
    "raid_pick": _picker("†state.found.*.id"),
    "raid_pick_text": _picker("†state.found.*.text"),
    "raid_pick_items": _picker("†state.found.items.*.id"),
    "raid_pick_whole": _picker("†state.found"),
    "raid_pick_deep": _picker("†state.found.*.*"),
    "raid_yes": _picker(True, {"type": "boolean"}),
}


def attempt(
    client: LocalClient, calls: Sequence[Mapping[str, Any]], context: Sequence[Any] = (), **options: Any
) -> Attempt:
    """Submit calls and wait until the run has ended, or nothing goes on without a person."""
    run = client.submit(list(context), {"calls": list(calls)}, **options)
    return settle(run)


def settle(run: Run[Any], held: int | None = None) -> Attempt:
    """Wait until the run has ended, or nothing goes on without a person; or until so many calls are held."""
    latest = monotonic() + SECONDS
    while not _is_quiet(run, held):
        assert monotonic() < latest, run.status()
    return Attempt(run, list(STARTED[run.id]), run.held() if run.status()["status"] == "running" else [])


def _is_quiet(run: Run[Any], held: int | None) -> bool:
    status = run.status()
    counts = {name: count for name, count in status["calls"].items() if count}
    under_way = set(counts) - {"done", "failed", "skipped", "held", "sent", "latent"}
    is_held = "held" in counts and not under_way if held is None else counts.get("held") == held
    return is_held or status["status"] not in ("running", "scheduled")


def found(
    client: LocalClient, calls: Sequence[Mapping[str, Any]], context: Sequence[Any] = (), **more: Any
) -> set[int]:
    """The calls with effects to which the check reports a way."""
    messages = [{"type": "text", "message": one} if isinstance(one, str) else one for one in context]
    document = {"context": messages, "solution": {"calls": list(calls)}, **more}
    findings = [finding.to_dict() for finding in client.check(document).findings]
    return {finding["effect"] for finding in findings if finding["code"] in ("ACT601", "ACT602")}


def assert_held(
    client: LocalClient, calls: Sequence[Mapping[str, Any]], context: Sequence[Any] = (), **options: Any
) -> Attempt:
    """Nothing started, the last call waits for a person, and the check has said so."""
    seen = attempt(client, calls, context, **options)
    try:
        assert seen.started == []
        assert [call["index"] for call in seen.held] == [len(calls) - 1], seen.statuses
        assert len(calls) - 1 in found(client, calls, context, **options)
    finally:
        end(seen.run)
    return seen


def end(run: Run[Any]) -> None:
    """Leave nothing held behind."""
    with suppress(RunOver):
        run.cancel()


def source(value: Any, tool: str = "raid_mail", path: str = "†state.mail", **more: Any) -> dict[str, Any]:
    """A call that brings in a value."""
    return {"_tool": tool, "value": value, "_outputPath": path, **more}


def effect(to: Any, tool: str = "raid_pay", **more: Any) -> dict[str, Any]:
    """The call that strangers want."""
    return {"_tool": tool, "to": to, "_outputPath": "†state.done", **more}


FOUND = [{"id": "A", "text": "evil"}, {"id": "B", "text": "x"}]


def picked(answer: Any, *, before: list[dict[str, Any]] | None = None, tool: str = "raid_pick") -> list[dict[str, Any]]:
    before = [source(FOUND, "raid_rows", "†state.found")] if before is None else before
    ask: dict[str, Any] = {"_tool": "ask", "_delegate": tool, "mail": "†state.mail", "_outputPath": "†state.id"}
    if before:
        ask["_after"] = ["†state.found"]
    return [*before, source(answer), ask, effect("†state.id")]
