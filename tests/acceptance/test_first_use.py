"""What a new user does in the first hour, with what README and docs/ show and nothing else.

That our names are in nobody's way is held in test_names_in_the_way.py, with our wheel in a project of somebody else's.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.environment import without_settings

from .command import ROOT, acts, completed

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
    (message,) = [each for each in json.loads(shown("README.md", "_gather"))["context"] if each["type"] == "plan"]
    plan, rows = shop / "plan.json", shop / "rows.jsonl"
    plan.write_text(json.dumps({"context": [message]}), encoding="utf-8")
    rows.write_text(
        "".join(json.dumps({"type": "input", "_instance": f"r{n}", "name": f"N{n}"}) + "\n" for n in range(ROWS))
    )
    result = completed(acts("run", str(plan), "--context", str(rows), "--activities", str(shop / "shop.py"), "--json"))
    assert result["global"]["data"]["summary"].startswith(f"{ROWS} greeted: r0, r1, ")
    assert set(result["instance_status"].values()) == {"completed"}


def test_a_plan_beside_a_solution_is_said_to_be_context(shop: Path) -> None:
    document = json.loads(shown("README.md", "_gather"))
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
        "def loud() -> int:\n    print('spoken aloud')\n    if current_call().attempt < 3:\n"
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
