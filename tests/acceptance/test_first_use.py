"""What a new user does in the first hour, with what README and docs/ show and nothing else.

That our names are in nobody's way is held in test_names_in_the_way.py, with our wheel in a project of somebody else's.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from acts_celery.broker_config import EmbeddedServer
from tests.environment import without_settings

from .backend import STOP_SECONDS, server_settings
from .command import COMMAND, ROOT, Finished, acts, completed, environment
from .forks import end

ROWS = 120


def shown(page: str, containing: str) -> str:
    """The one block of a page that contains a text."""
    blocks = re.findall(
        r"^```\w+(?: \S+)?\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    (found,) = [block for block in blocks if containing in block]
    return str(found)


def python(folder: Path, *cells: str) -> str:
    """What a program prints that ends well, each cell compiled by itself as in a notebook."""
    shell = f"for n, cell in enumerate({cells!r}): exec(compile(cell, str(n), 'exec'), globals())\n"
    environment = {**without_settings(), "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"}
    done = subprocess.run(
        [sys.executable, "-c", shell],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(shown("README.md", "# shop.py"), encoding="utf-8")
    return tmp_path


def test_a_plan_runs_for_each_row_and_one_summary_is_made_of_all(shop: Path) -> None:
    (message,) = [each for each in json.loads(shown("README.md", '"_gather"'))["context"] if each["type"] == "plan"]
    plan, rows = shop / "plan.json", shop / "rows.jsonl"
    plan.write_text(json.dumps({"context": [message]}), encoding="utf-8")
    rows.write_text(
        "".join(json.dumps({"type": "input", "_instance": f"r{n}", "name": f"N{n}"}) + "\n" for n in range(ROWS))
    )
    result = completed(acts("run", str(plan), "--context", str(rows), "--activities", str(shop / "shop.py"), "--json"))
    assert result["global"]["data"]["summary"].startswith(f"{ROWS} greeted: r0, r1, ")
    assert set(result["instance_status"].values()) == {"completed"}


def test_a_plan_beside_a_solution_is_said_to_be_context(shop: Path) -> None:
    document = json.loads(shown("README.md", '"_gather"'))
    document["context"][-1]["calls"], (gather,) = [
        [call for call in document["context"][-1]["calls"] if bool(call.get("_gather")) is is_gather]
        for is_gather in (False, True)
    ]
    told = acts(
        "check", "-", "--activities", str(shop / "shop.py"), stdin={**document, "solution": {"calls": [gather]}}
    )
    assert told.code == 2
    assert "beside a solution a plan is context and does not run" in told.stderr


def test_a_program_of_asyncio_has_every_method_and_each_way_to_submit_takes_the_same(shop: Path) -> None:
    program = """
import asyncio
from acts_celery import AsyncClient, NoLoop, local

with local(["shop.py"]) as plain:
    async def main():
        async with AsyncClient(plain.settings) as client:
            call = {"_tool": "greet", "name": "Ann", "_outputPath": "†state.greeting"}
            options = {"config": {"max_concurrency": 1}, "name": "ann", "tags": ["new"], "allow": ["greet"]}
            options["schema"] = {"type": "null"}
            one = await client.submit([], {"calls": [call]}, id="one", **options)
            two = await client.submit_document({"solution": {"calls": [call]}}, id="two", **options)
            three = await client.submit_plan(await client.check_submission({"solution": {"calls": [call]}}))
            for run in (one, two, three):
                assert (await run.wait(timeout_seconds=30)).data()["state"] == {"greeting": "Hello Ann"}
                assert await run.total == 1
                assert len([entry async for entry in run.log()]) == 1
                assert await run.plan() is None
                assert (await run.child(run.id).status())["status"] == "completed"
            assert {found.run async for found in client.runs(name="new")} == {"one", "two"}
            assert await client.dead_letters().list() == []
            lines = [line async for line in two.export()]
            await two.delete()
            await (await client.import_run(lines)).delete()
            for order in (one.script(), one.approve_plan("none")):
                try:
                    await order
                except Exception as error:
                    print(type(error).__name__)
    asyncio.run(main())
"""
    assert python(shop, program).splitlines() == ["NoLoop", "RunOver"]


def test_a_notebook_uses_what_was_defined_last_in_one_backend_for_all_cells(shop: Path) -> None:
    begin = "import shop\nfrom acts_celery import activity, local\nbackend = local([shop])\nclient = backend.start()\n"
    define = "@activity\ndef cost(name: str) -> int:\n    return {}\n"
    use = (
        "calls = [{'_tool': 'greet', 'name': 'Ann', '_outputPath': '†state.a'}, "
        "{'_tool': 'cost', 'name': '†state.a', '_outputPath': '†state.b'}]\n"
        "print(client.submit([], {'calls': calls}).wait(timeout_seconds=30).data()['state'])\n"
    )
    cells = begin, define.format(3), use, define.format(5), use, begin, use, "backend.stop()"
    sums = [json.loads(line.replace("'", '"')) for line in python(shop, *cells).splitlines()]
    assert sums == [{"a": "Hello Ann", "b": cost} for cost in (3, 5, 5)]


def test_a_worker_logs_what_an_activity_prints_as_information_and_tries_again_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(
        "from acts_celery import activity, current_call\n\n@activity(retries=2, backoff_seconds=0.01)\n"
        "def loud() -> int:\n    print('spoken', 'aloud')\n    if current_call().attempt < 3:\n"
        "        raise OSError('away')\n    return 1\n"
    )
    log, call = tmp_path / "worker.log", {"_tool": "loud", "_outputPath": "†state.x"}
    options = ("--activities", str(tmp_path / "loud.py"), "--worker-log", str(log), "--json")
    completed(acts("run", "-", *options, stdin={"solution": {"calls": [call]}}))
    lines = log.read_text(encoding="utf-8").splitlines()
    spoken = [line for line in lines if line.endswith("spoken aloud")]
    assert len(spoken) == 3
    assert not any("WARNING" in line for line in spoken)
    assert len([line for line in lines if "OSError (away)" in line]) == 2
    assert "Traceback" not in "\n".join(lines)


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Callable[..., Finished]]:
    """The command, beside a server and a worker that charges orders: `bad` can be charged once a file is there."""
    mended, code = tmp_path / "mended", tmp_path / "orders.py"
    code.write_text(
        "from pathlib import Path\nfrom acts_celery import activity\n\n@activity(version='2')\n"
        f"def charge(order: str, amount: int) -> int:\n    if order == 'bad' and not Path({str(mended)!r}).exists():\n"
        "        raise ValueError('the account is closed')\n    return amount\n\n@activity\n"
        "def total(charges: dict[str, int]) -> int:\n    return sum(charges.values())\n"
    )
    with EmbeddedServer() as server, (tmp_path / "worker.log").open("wb") as log:
        env = server_settings(server) | {"ACTS_ACTIVITIES": str(code)}
        worker = subprocess.Popen(
            [*COMMAND, "worker", "--processes", "1"], stderr=log, stdout=log, env=environment(env)
        )
        try:
            yield lambda *arguments, **options: acts(*arguments, env=env, **options)
        finally:
            end(worker, STOP_SECONDS)


ORDERS: Final[list[Any]] = [
    {"type": "input", "_instance": name, "order": name, "amount": amount} for name, amount in (("a", 1), ("bad", 90))
]
CHARGE: Final = {"_tool": "charge", "order": "†input.order", "amount": "†input.amount", "_outputPath": "†state.charged"}
GREETED: Final = {"_tool": "greet", "name": "†input.name", "_outputPath": "†state.greeting"}
TOTAL: Final = {"_tool": "total", "charges": "†state.charged", "_gather": True, "_outputPath": "†state.total"}


def test_a_result_that_goes_nowhere_is_noticed(orders: Callable[..., Finished]) -> None:
    nowhere = {key: part for key, part in TOTAL.items() if key != "_outputPath"}
    told = orders("check", "-", stdin={"context": [*ORDERS, {"type": "plan", "calls": [CHARGE, nowhere]}]})
    assert (told.code, "ACT405" in told.stdout) == (0, True)


def test_a_summary_that_a_retry_leaves_stale_is_named_and_put_right_and_mended_errors_are_gone(
    orders: Callable[..., Finished], tmp_path: Path
) -> None:
    plan = {"context": [*ORDERS, {"type": "plan", "calls": [CHARGE, TOTAL]}]}
    assert orders("submit", "-", "--name", "orders", stdin=plan).code == 0
    failed = orders("wait", "orders", "--json")
    assert (failed.code, failed.json["instance_status"]) == (1, {"a": "completed", "bad": "failed"})
    assert failed.json["global"]["state"] == {"total": 1}
    (tmp_path / "mended").touch()
    told = orders("retry", "orders")
    assert (told.code, "--downstream" in told.stdout + told.stderr) == (0, True), told
    stale = orders("wait", "orders", "--json").json
    assert [call["tool"] for call in stale["calls"] if call.get("stale")] == ["total"]
    assert (stale["instance_status"]["bad"], stale["global"]["state"]) == ("completed", {"total": 1})
    assert orders("retry", "orders", "--downstream").code == 0
    right = orders("wait", "orders", "--json").json
    assert right["global"]["state"] == {"total": 91}
    assert "error" not in right["instances"]["bad"]
    assert {call["version"] for call in right["calls"] if call["tool"] == "charge"} == {"2"}
    assert all(call["worker"] for call in right["calls"])


def test_the_audit_says_what_a_person_has_changed(orders: Callable[..., Finished]) -> None:
    document = {"context": ORDERS[1:], "solution": {"calls": [{**CHARGE, "_instance": "bad"}]}}
    run = orders("submit", "-", "--json", stdin={**document, "config": {"approve": ["charge"]}}).json["run"]
    deadline = time.monotonic() + 30
    while not (held := orders("held", run, "--json").json_lines) and time.monotonic() < deadline:
        pass
    (call,) = held
    assert call["parameters"] == {"order": "bad", "amount": 90}
    assert (
        orders(
            "approve", run, call["call"], "--shown", call["shown"], "--parameters", '{"order": "good", "amount": 10}'
        ).code
        == 0
    )
    assert orders("wait", run).code == 0
    told = orders("log", run, "--audit")
    assert ("90" in told.stdout, "10" in told.stdout, "good" in told.stdout) == (True, True, True), told


def projects() -> dict[str, str]:
    """What the pages show of three projects: rows of a table, a web service, an agent."""
    how_to, readme = ((ROOT / page).read_text(encoding="utf-8") for page in ("docs/how-to.md", "README.md"))
    rows, delegate = (how_to.split(f"## {title}")[1].split("\n## ")[0] for title in (TABLE, "Write a delegate"))
    agent = readme.split("## An agent that asks")[1].split("\n## ")[0]
    service = (ROOT / "deploy/examples/web/fastapi/app.py").read_text(encoding="utf-8")
    return {"rows": rows, "service": service, "agent": agent + delegate}


TABLE: Final = "From a CSV file to a table"


def test_three_projects_are_written_with_the_twenty_concepts_of_the_page() -> None:
    words = (
        (ROOT / "docs/concepts.md")
        .read_text(encoding="utf-8")
        .split("## What three projects need")[1]
        .split("\n## ")[0]
    )
    assert len(re.findall(r"^\| [a-z]", words, re.MULTILINE)) - 1 == 20  # the first line is the head
    for name, text in projects().items():
        used = set(re.findall(r"""["'](_[a-z][a-zA-Z]+)["']""", text))
        assert used - set(re.findall(r"`[^`]*?(_[a-z][a-zA-Z]+)[^`]*`", words)) == set(), name


def test_the_readme_shows_a_picture_and_python_before_json_and_begins_without_the_tools_of_developers() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    picture, command, code, document = (readme.index(mark) for mark in ("![", "```sh", "```python", "```json"))
    assert picture < command < code < document
    run = re.search(r"^run: (\S+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    made = (ROOT / "Makefile").read_text(encoding="utf-8").partition(f"\n{run and run[1]}:")[2].partition("\n\n")[0]
    assert ".[dev]" not in made
    assert "--editable ." in made


MEANT: Final[list[tuple[str, dict[str, Any], str]]] = [
    ("a reference in a text", {**GREETED, "name": "Dear †input.nick"}, "ACT305"),
    ("a kind that is misspelt", {**GREETED, "_outputPath": "†stat.greeting"}, "write †state.greeting"),
    (
        "a forgotten gathering",
        {"_tool": "summary", "greetings": "†state.greeting", "_outputPath": "†data.s"},
        "_gather",
    ),
]


@pytest.mark.parametrize(("call", "word"), [one[1:] for one in MEANT], ids=[one[0] for one in MEANT])
def test_what_was_hardly_meant_is_warned_of_before_a_run(shop: Path, call: dict[str, Any], word: str) -> None:
    context = [{"type": "input", "_instance": "ann", "name": "Ann"}, {"type": "plan", "calls": [GREETED, call]}]
    told = acts("run", "-", "--strict", "--activities", str(shop / "shop.py"), stdin={"context": context})
    assert (told.code, word in told.stderr, told.stdout) == (2, True, ""), told
