"""Heavy checks are made in a process beside the worker's; whatever becomes of that, no verdict is lost or changed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol.schemas import compiled
from acts_celery.protocol.schemas.costs import EXCEEDED
from acts_celery.protocol.schemas.validation import Check, OffloadedChecks, verdict_of
from acts_celery.worker.runner import checking as validator
from acts_celery.worker.runner.checking import Validator

from .backend import DEADLINE_SECONDS, ROOT, Backend, Meeting, ends, settings_apart

T = TypeVar("T")

HEAVY = {"items": {"anyOf": [{"pattern": f"(a|b)*{'[ab]' * 12}c{number}$"} for number in range(300)]}}
TEXTS = ["ab" * 20] * 1_000


def check_of(schema: Any, value: Any) -> Check:
    offloaded = OffloadedChecks()
    with offloaded:
        compiled(schema).problems(value, "result", known=())
    (check,) = offloaded.asked
    return check


CHECK = check_of(HEAVY, TEXTS)


def using(test: Callable[[Validator], Awaitable[T]]) -> T:
    """What a test returns of a validator, which is closed."""

    async def whole() -> T:
        one = Validator()
        try:
            return await asyncio.wait_for(test(one), DEADLINE_SECONDS)
        finally:
            await one.close()

    return asyncio.run(whole())


def pid_of(one: Validator) -> int:
    assert one._process is not None
    return one._process.pid


def test_the_verdict_is_that_of_this_process() -> None:
    async def test(one: Validator) -> None:
        fits = check_of({"items": {"anyOf": [*HEAVY["items"]["anyOf"], {}]}}, TEXTS)
        for check in (CHECK, fits, CHECK):
            assert await one.verdict(check) == verdict_of(check)

    assert verdict_of(CHECK)
    using(test)


def test_what_is_asked_of_a_process_that_is_killed_is_asked_of_the_next() -> None:
    async def test(one: Validator) -> None:
        await one.verdict(CHECK)
        first = pid_of(one)
        os.kill(first, signal.SIGSTOP)
        verdict = asyncio.ensure_future(one.verdict(CHECK))
        await asyncio.sleep(0)  # it is asked now
        os.kill(first, signal.SIGKILL)
        assert await verdict == verdict_of(CHECK)
        assert pid_of(one) != first
        os.kill(pid_of(one), signal.SIGKILL)  # while nothing is asked
        assert await one.verdict(CHECK) == verdict_of(CHECK)

    using(test)


@pytest.mark.parametrize(("ended_by", "deaths"), [(signal.SIGKILL, 3), (signal.SIGPROF, 1)])
def test_a_check_that_the_process_dies_of_each_time_takes_too_much(
    ended_by: int, deaths: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mortal = f"import os; print(flush=True); input(); os.kill(os.getpid(), {int(ended_by)})"
    monkeypatch.setattr(validator, "_PROGRAM", mortal)
    assert [str(problem) for problem in using(lambda one: one.verdict(CHECK))] == [f"/result: {EXCEEDED}"]
    assert len(caplog.records) == deaths


def test_where_no_process_can_be_begun_the_check_is_made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validator, "_PROGRAM", "raise SystemExit(1)")
    assert using(lambda one: one.verdict(CHECK)) == verdict_of(CHECK)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert using(lambda one: one.verdict(CHECK)) == verdict_of(CHECK)


def test_an_answer_that_is_not_awaited_any_more_is_not_taken_for_that_of_the_next_check() -> None:
    async def test(one: Validator) -> None:
        await one.verdict(CHECK)
        first = pid_of(one)
        os.kill(first, signal.SIGSTOP)
        verdict = asyncio.ensure_future(one.verdict(CHECK))
        await asyncio.sleep(0)
        verdict.cancel()
        with pytest.raises(asyncio.CancelledError):
            await verdict
        assert ends(first)
        fits = check_of({"items": {"anyOf": [*HEAVY["items"]["anyOf"], {}]}}, TEXTS)
        assert await one.verdict(fits) == []

    using(test)


BOUNDED = """
import sys
from acts_celery.worker.lanes import validating
validating._MOST_BYTES, validating._MOST_SECONDS = {bytes}, {seconds}
validating.verdict_of = lambda check: {work}
validating.main()
"""


@pytest.mark.parametrize(
    ("seconds", "work", "ended_by"),
    [
        (0.1, "[None for _ in iter(int, 1)]", -signal.SIGPROF),
        (30, "bytearray(2**30)", 1),
    ],
)
def test_its_time_and_its_memory_are_bounded(seconds: float, work: str, ended_by: int) -> None:
    program = BOUNDED.format(bytes=2**29, seconds=seconds, work=work)
    lines = "\n".join(CHECK) + "\n"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, input=lines, text=True, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (ended_by, "\n"), done.stderr


def test_it_loads_no_more_than_the_core() -> None:
    loaded = (
        "import sys; from acts_celery.worker.runner import validating; "
        "print(*{name.split('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", loaded], cwd=ROOT, capture_output=True, text=True, check=True)
    assert not {"celery", "redis", "kombu", "pydantic", "asyncio"} & {*done.stdout.split()}


def test_it_ends_with_a_worker_that_is_killed() -> None:
    holder = f"""
import asyncio, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.worker.test_validator import CHECK, Validator
async def main():
    one = Validator()
    await one.verdict(CHECK)
    print(one._process.pid, flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", holder], cwd=ROOT, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        pid = int(worker.stdout.readline())
        worker.kill()
    assert ends(pid)


def validator_of(worker: int) -> int:
    """The validator's process beside a worker's."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == worker and b"validating" in (folder / "cmdline").read_bytes():
                return int(folder.name)
        except OSError:
            continue  # it has ended
    raise AssertionError("the worker has no validator")


def test_a_worker_whose_validator_is_killed_loses_nothing(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path
) -> None:
    backend = Backend(settings_apart(server, "validated"), meeting, tmp_path)
    tool = {"type": "object", "properties": {"_activity": {}, "value": {}}, "_output": HEAVY}
    heavy = {"_tool": "echo", "value": TEXTS, "_outputPath": "†state.a"}
    light = {"_tool": "echo", "value": 1, "_outputPath": "†state.b"}
    with backend.worker("-Q", "validated-instances") as worker:
        first = backend.run([heavy], tools={"echo": tool}).calls[0].error
        pid = validator_of(worker.pid)
        os.kill(pid, signal.SIGSTOP)
        run = backend.client.submit(
            [],
            {"calls": [heavy, {**heavy, "value": ["ab" * 9 + "c1"], "_outputPath": "†state.c"}]},
            tools={"echo": tool},
        )
        for _ in range(3):
            assert backend.run([light]).status == "completed", "what is heavy holds up no other run"
        assert run.status()["status"] == "running"
        os.kill(pid, signal.SIGKILL)
        result = backend.wait(run.id)
        assert [call.status for call in result.calls] == ["failed", "done"]
        assert first == result.calls[0].error
        assert "is not what the tool's _output promises" in str(first)
        assert verdict_of(CHECK)[0].message in str(first)
        last = validator_of(worker.pid)
        worker.terminate()
        assert worker.wait(DEADLINE_SECONDS) == 0
    assert ends(last)


def test_what_is_done_in_a_thread_is_checked_in_the_process_while_the_loop_turns() -> None:
    texts = ["ab" * 20] * 500

    async def test(one: Validator) -> None:
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        turning = asyncio.create_task(turn())
        found = await one.in_thread("r", lambda: compiled(HEAVY).problems(texts, "result", known=()))
        turning.cancel()
        assert found == compiled(HEAVY).problems(texts, "result", known=())
        assert one._process is not None
        assert turns > 10

    using(test)


def test_what_a_thread_raises_is_raised() -> None:
    async def test(one: Validator) -> None:
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                await one.in_thread("r", lambda: 1 // 0)

    using(test)
