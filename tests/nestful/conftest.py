"""Fixtures of the NESTFUL tests: the judged data, and the `acts` command run on it once for all."""

import json
from pathlib import Path

import pytest

from .command import Ended, acts
from .source import find_data, load
from .verdicts import Verdicts


@pytest.fixture(scope="session")
def verdicts() -> Verdicts:
    """The data with the evaluator's verdicts; tests that need it are skipped where it is missing."""
    folder = find_data()
    if folder is None:
        pytest.skip("data not present")
    return Verdicts(load(folder))


@pytest.fixture(scope="session")
def everything(verdicts: Verdicts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose `submission.json` holds all sequences."""
    return _submitted(verdicts.submission(verdicts.dataset.flows), tmp_path_factory.mktemp("everything"))


@pytest.fixture(scope="session")
def all_valid(verdicts: Verdicts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose `submission.json` holds the valid sequences."""
    return _submitted(verdicts.submission(verdicts.valid), tmp_path_factory.mktemp("valid"))


@pytest.fixture(scope="session")
def checked(everything: Path) -> Ended:
    """`acts check --json` of all sequences at once."""
    return acts("check", everything, "--json")


@pytest.fixture(scope="session")
def checked_valid(all_valid: Path) -> Ended:
    """`acts check --json` of the valid sequences."""
    return acts("check", all_valid, "--json")


@pytest.fixture(scope="session")
def ran(all_valid: Path) -> Ended:
    """`acts run --json`: all valid sequences in one run on the embedded server."""
    return acts("run", all_valid, "--json")


def _submitted(submission: object, folder: Path) -> Path:
    (folder / "submission.json").write_text(json.dumps(submission, ensure_ascii=False), "utf-8")
    return folder
