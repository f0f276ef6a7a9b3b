"""Options have names: a mistake in plain Python is told as well as one in a plan; sync, async and docs agree."""

from __future__ import annotations

import asyncio
import inspect
import pydoc
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acts_celery import AsyncClient, Client, Draft, LocalClient, Rejected, activity, local, ref

DOCS = Path(__file__).parents[2] / "docs"
SECONDS = 60


@activity("optionsPay")
def pay(amount: int) -> str:
    return f"paid {amount}"


@activity("optionsTell")
def tell(name: str, state: dict[str, int]) -> str:
    return f"{name} has {state}"


PAID = {"calls": [{"_tool": "optionsPay", "amount": 1, "_outputPath": "†state.x"}]}


@pytest.fixture(scope="module")
def client() -> Iterator[LocalClient]:
    with local([pay, tell]) as running:
        yield running


OTHER: dict[str, Any] = {"brokr": {"brokr": "redis://localhost"}}
FUNCTION: Any = pay
MISTAKES: list[tuple[str, Any, str]] = [
    ("restriction", lambda client: client.submit([], PAID, allowed=["look"]), "'allowed', did you mean 'allow'?"),
    ("identity", lambda client: client.submit([], PAID, run_id="ours-17"), "'run_id', did you mean 'id'?"),
    ("name", lambda client: client.submit([], PAID, nmae="x"), "did you mean 'name'?"),
    ("list", lambda client: client.submit([], PAID, tool=["optionsPay"]), "did you mean 'tools'?"),
    (
        "option of a call",
        lambda client: client.submit([], PAID, retries=3),
        "no option 'retries'; it has allow, at, config",
    ),
    ("calls alone", lambda client: client.submit([], calls=PAID["calls"]), "no option 'calls'; it has"),
    ("one tag", lambda client: client.submit([], PAID, tags="monday"), "tags=['monday']"),
    ("one allowed name", lambda client: client.submit([], PAID, allow="optionsPay"), "allow=['optionsPay']"),
    ("one instance", lambda client: client.erasable_runs("Ann"), "instances=['Ann']"),
    ("document", lambda client: client.submit_document({"solution": PAID}, alow=[]), "did you mean 'allow'?"),
    ("check", lambda client: client.check({"solution": PAID}, allowed=[]), "did you mean 'allow'?"),
    ("timeout", lambda client: client.run_of("x").wait(timeout=3), "'timeout', did you mean 'timeout_seconds'?"),
    ("follow", lambda client: client.run_of("x").follow(timeout=3), "did you mean 'timeout_seconds'?"),
    (
        "filter of runs",
        lambda client: client.runs(state="failed"),
        "runs() has no option 'state', did you mean 'status'?",
    ),
    ("retry", lambda client: client.run_of("x").retry(instances="Ann"), "did you mean 'instance'?"),
    (
        "constructor",
        lambda _: Client(**OTHER["brokr"]),
        "Client() has no option 'brokr', did you mean 'broker'",
    ),
    ("local", lambda _: local("activities.py"), "write local([activities.py])"),
    ("function of local", lambda _: local(FUNCTION), "write local([pay])"),
    ("draft beside a solution", lambda client: client.submit(Draft(client=client), PAID), "submit it alone"),
]
"""What beginners write, and what is said."""


@pytest.mark.parametrize(("make", "said"), [one[1:] for one in MISTAKES], ids=[one[0] for one in MISTAKES])
def test_a_mistake_in_an_option_is_refused_with_what_to_write(client: LocalClient, make: Any, said: str) -> None:
    before = len(list(client.runs()))
    with pytest.raises(TypeError, match=re.escape(said)) as refused:
        make(client)
    assert len(str(refused.value).splitlines()) == 1
    assert len(list(client.runs())) == before, "nothing was submitted"


def test_the_same_mistakes_are_refused_where_methods_are_awaited(client: LocalClient) -> None:
    async def awaited() -> None:
        async with AsyncClient(client.settings) as careful:
            other: Any = careful
            for refused in (other.submit, other.check):
                with pytest.raises(TypeError, match="did you mean 'allow'"):
                    await refused({"solution": PAID}, allowed=["look"])

    asyncio.run(awaited())


def test_a_draft_a_document_and_a_context_with_a_solution_are_submitted_alike(client: LocalClient) -> None:
    draft = Draft(client=client)
    draft.call(pay, amount=1) >> ref.state.x
    document = {"solution": PAID}
    calls = [{"type": "state", "y": 1}, *PAID["calls"]]
    ways: list[tuple[Any, ...]] = [(draft,), (document,), ([], PAID), (calls,), (PAID["calls"][0],)]
    for submitted in ways:
        result = client.submit(*submitted).result(timeout_seconds=SECONDS)
        assert result.value("†state.x") == "paid 1"
    assert client.check(draft).waves == client.check(document).waves == ((0,),)
    assert client.submit_document(draft, name="drafted").result(timeout_seconds=SECONDS).status == "completed"


def test_a_message_alone_is_still_a_context(client: LocalClient) -> None:
    with pytest.raises(Rejected, match="solution"):
        client.submit({"type": "input", "x": 1})


FAULTS: list[tuple[str, dict[str, Any], str]] = [
    ("function as tool", {"_tool": pay, "amount": 1}, "write the name of the tool"),
    ("misspelt parameter", {"_tool": "optionsPay", "amont": 1}, "write amount"),
    ("state that is not keyword-only", {"_tool": "optionsTell", "name": "x"}, "`*, state` in the function"),
    ("reference in a text", {"_tool": "optionsTell", "name": "Dear †input.name", "state": {}}, "Dear †{input.name}"),
]
"""What beginners write into a plan, and what is said."""


@pytest.mark.parametrize(("call", "said"), [one[1:] for one in FAULTS], ids=[one[0] for one in FAULTS])
def test_a_mistake_in_a_plan_is_refused_with_what_to_write(client: LocalClient, call: Any, said: str) -> None:
    with pytest.raises(Rejected, match=re.escape(said)):
        client.submit({"type": "input", "name": "Ann"}, {"calls": [call]})


def test_the_client_of_local_has_the_methods_of_any_other() -> None:
    for name, method in inspect.getmembers(Client, inspect.isfunction):
        if not name.startswith("_"):
            assert inspect.signature(getattr(LocalClient, name)) == inspect.signature(method), name


def test_the_help_of_the_client_is_two_screens() -> None:
    assert len(pydoc.TextDoc().document(Client).splitlines()) <= 120


def test_every_option_is_written_in_the_signature_and_in_the_docs() -> None:
    page = (DOCS / "python.md").read_text(encoding="utf-8")
    for name in ("submit", "submit_document"):
        parameters = inspect.signature(getattr(Client, name)).parameters
        assert not any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        (line, *_) = re.findall(rf"^- `\.{name}\((.*?)\) -> Run`", page, re.MULTILINE)
        assert [one.split("=")[0].strip() for one in line.split(",") if one.strip() != "*"] == [*parameters][1:]
