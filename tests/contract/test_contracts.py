"""A client without the workers' code: it checks against what they announce, or against a file of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acts_celery import Client, ContractsError, Rejected, local
from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.registry.contracts import ask_workers, contracts_of, read_contracts
from tests.environment import without_settings

SECONDS = 60
CODE = """
from acts_celery import activity

@activity(queue="slow", version="1")
def order(item: str, *, state: dict, count: int = 1) -> str:
    return f"{count} {item}"
"""
CALLS = {"calls": [{"_tool": "order", "item": "tea", "count": 2, "_outputPath": "†state.ordered"}]}
CLIENT = """
import json, sys
from acts_celery import Client, Rejected
client = Client(**json.loads(sys.argv[1]))
try:
    run = client.submit([], json.loads(sys.argv[2]))
    print(json.dumps([run.result(timeout_seconds=60).data(), run.status()]))
except Rejected as rejected:
    print(json.dumps([problem.message for problem in rejected.errors]))
"""


class Site:
    """A server, a worker with the code, and programs that do not have it."""

    def __init__(self, url: str, folder: Path) -> None:
        self.environment = {**without_settings(), "ACTS_BROKER_URL": url, "ACTS_REDIS_URL": url}
        self.folder = folder

    def submit(self, solution: dict[str, Any], **options: Any) -> Any:
        """What a program of its own gets that submits a solution."""
        return json.loads(self.run("-c", CLIENT, json.dumps(options), json.dumps(solution)).stdout)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Python with these arguments, in the folder."""
        command = [sys.executable, *arguments]
        return subprocess.run(
            command,
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=5 * SECONDS,
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("contracts")
    (folder / "shop.py").write_text(CODE, encoding="utf-8")
    with EmbeddedServer() as server:
        made = Site(server.redis_url, folder)
        command = [sys.executable, "-m", "acts_celery", "worker", "--activities", str(folder / "shop.py"), "--json"]
        with subprocess.Popen(
            command, env=made.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as worker:
            assert worker.stdout is not None
            assert json.loads(worker.stdout.readline())["worker"]
            yield made
            worker.terminate()


def test_a_client_without_the_code_checks_against_what_the_workers_announce(site: Site) -> None:
    data, status = site.submit(CALLS)
    assert data == {"state": {"ordered": "2 tea"}}
    assert status["contracts"].startswith("workers: acts@"), "the run says what it was checked against"


def test_its_mistakes_are_found_as_where_the_code_is(site: Site) -> None:
    misspelt, parameter = site.submit({"calls": [{"_tool": "ordr", "item": "tea"}, {"_tool": "order", "itm": "tea"}]})[
        :2
    ]
    assert "did you mean 'order'?" in misspelt
    assert "write item" in parameter


def test_a_file_of_contracts_does_the_same_without_asking(site: Site) -> None:
    written = site.run("-m", "acts_celery", "contracts", "--json")
    assert written.returncode == 0, written.stderr
    (site.folder / "tools.json").write_text(written.stdout, encoding="utf-8")
    data, status = site.submit(CALLS, contracts="tools.json")
    assert (data, status["contracts"]) == ({"state": {"ordered": "2 tea"}}, "tools.json")
    assert "order" in site.run("-m", "acts_celery", "contracts").stdout


def test_where_nobody_announces_the_error_says_what_to_do(tmp_path: Path) -> None:
    with EmbeddedServer() as server:
        alone = Site(server.redis_url, tmp_path)
        (said,) = alone.submit(CALLS)
        assert "unknown tool 'order': no worker has announced" in said
        assert "acts worker" in said
        assert alone.run("-m", "acts_celery", "contracts").returncode == 3


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{", "not JSON"),
        ("[]", "acts contracts --json"),
        ('{"format": 99, "activities": {}, "delegates": {}}', "update it here"),
        ('{"format": 1, "activities": {"x": {"schema": 1}}, "delegates": {}}', "cannot be read"),
        (
            '{"format": 1, "activities": {"x": {"schema": {}, "queue": null, "version": "1", "policy": {"no": 1}}}}',
            "no",
        ),
    ],
)
def test_a_file_that_holds_no_contracts_is_refused(tmp_path: Path, text: str, word: str) -> None:
    (tmp_path / "tools.json").write_text(text, encoding="utf-8")
    with pytest.raises(ContractsError, match=word):
        Client(contracts=tmp_path / "tools.json")
    with pytest.raises(ContractsError):
        Client(contracts=tmp_path / "none.json")


def order(item: str) -> str:
    return item


class Workers:
    """What stands where Celery's control does: workers that answer."""

    def __init__(self, **documents: Any) -> None:
        self.documents = documents

    def broadcast(self, _: str, **options: Any) -> list[dict[str, Any]]:
        asked = options.get("destination") or list(self.documents)
        return [{name: self.documents[name]} for name in asked]


def announcing(**changes: Any) -> dict[str, Any]:
    """What a worker with one activity announces."""
    with local([order]) as client:
        document = contracts_of(client.checker.registry.limited_to(["order"]))
    document["activities"]["order"]["schema"] |= changes
    return {**document, "digest": json.dumps(changes)}


def test_workers_with_different_contracts_are_named_and_most_of_them_decide() -> None:
    new = announcing(description="new")
    found = ask_workers(Workers(a=announcing(), b=new, c=new), None)
    assert found.known.activities["order"].schema["description"] == "new"
    (problem,) = found.problems
    assert "different contracts of order" in problem
    assert "most common" in problem
    assert read_contracts(found.to_dict(), "tools.json").schemas() == found.known.schemas()


def test_a_client_older_than_its_workers_and_older_workers_are_told() -> None:
    found = ask_workers(Workers(new={**announcing(), "format": 99}, old={"error": "refused"}), None)
    assert found.known.activities == {}
    assert any("update it here" in problem for problem in found.problems)
    assert any("worker old" in problem and "announces no tools" in problem for problem in found.problems)


def test_the_contract_of_a_file_is_that_of_the_code() -> None:
    with local([order]) as client:
        known = client.checker.registry
        read = read_contracts(contracts_of(known), "tools.json")
        assert {name: one.contract.mark for name, one in read.activities.items()} == {
            name: one.contract.mark for name, one in known.activities.items()
        }
        with pytest.raises(Rejected):
            client.check({"solution": {"calls": [{"_tool": "nobody"}]}})
