"""A server that has thrown keys of a run away: what is read of the run says so, and no repeated submission is accepted
that would never run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from acts_celery import Run, RunBroken, RunNotFound
from acts_celery.worker.store.keys import Keys
from tests.acceptance.command import acts

from .backend import Backend, heard

CONTEXT = [{"type": "state", "_instance": name, "n": name} for name in ("a", "b")]
SOLUTION = {"calls": [{"_tool": "echo", "value": "†state.n", "_gather": True, "_outputPath": "†data.all"}]}


def run_without(backend: Backend, name: str, key: str) -> Run:
    """A run that has ended, of which the server has lost a key."""
    run = backend.client.submit(CONTEXT, SOLUTION, id=name)
    assert backend.wait(run.id).status == "completed"
    backend.redis.delete(getattr(Keys(backend.settings.key_prefix, run.id), key))
    return backend.client.run_of(run.id)


def outcome(read: Callable[[], Any]) -> str:
    """What comes of reading: how it went on, or which error it was."""
    try:
        return str(read())
    except (RunBroken, RunNotFound) as error:
        return type(error).__name__


TABLE = {
    "log": ("RunBroken", "RunBroken", "RunBroken"),
    "statuses": ("completed", "RunBroken", "RunBroken"),
    "definition": ("RunBroken", "RunBroken", "RunBroken"),
    "state": ("RunNotFound", "RunNotFound", "completed"),
    "lanes": ("completed", "completed", "completed"),
    "instances": ("completed", "completed", "completed"),
    "gathers": ("completed", "completed", "completed"),
    "codes": ("completed", "completed", "completed"),
    "calls": ("completed", "completed", "completed"),
}


@pytest.mark.parametrize("key", TABLE)
def test_what_is_read_of_a_run_and_its_repeated_submission_notice_a_lost_key(backend: Backend, key: str) -> None:
    result, waited, again = TABLE[key]
    run = run_without(backend, f"lost-{key}", key)
    assert outcome(lambda: run.result().status) == result
    if key != "state":  # nothing says then that there was a run, but for its statuses
        assert outcome(lambda: run.wait(timeout_seconds=20).status) == waited
    assert outcome(lambda: len(list(run.export())) > 1 and run.result().status) == result
    assert outcome(lambda: backend.wait(backend.client.submit(CONTEXT, SOLUTION, id=run.id).id).status) == again


def test_the_command_that_exports_a_broken_run_fails_and_says_what_is_gone(backend: Backend) -> None:
    run = run_without(backend, "lost-on-export", "log")
    done = acts("export", run.id, env=backend.settings.to_environment())
    assert (done.code, done.stdout) == (4, "")
    assert "BROKEN" in done.stderr
    assert "log" in done.stderr


@pytest.fixture
def evicting(own: Backend) -> Iterator[Backend]:
    """A server that throws keys away when it is full."""
    before: Any = own.redis.config_get("maxmemory-policy")
    own.redis.config_set("maxmemory-policy", "volatile-lru")
    yield own
    own.redis.config_set("maxmemory-policy", before["maxmemory-policy"])


def test_a_worker_and_a_submission_warn_of_a_server_that_throws_keys_away(evicting: Backend) -> None:
    with evicting.worker():
        heard(evicting, "maxmemory-policy volatile-lru")
    done = acts(
        "submit",
        "-",
        "--json",
        stdin={"context": CONTEXT, "solution": SOLUTION},
        env=evicting.settings.to_environment(),
    )
    assert done.code == 0
    assert "maxmemory-policy volatile-lru" in done.stderr
