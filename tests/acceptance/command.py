"""Run the `acts` command as a process and hold what it said.

`acts` forks a process that has the command's modules, `acts_afresh` starts an interpreter for it as a user does.

Expectations come from INTERFACE's table of commands: exit codes, what goes to stdout and what to stderr.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.environment import without_settings

from . import forks

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = Path(__file__).resolve().parent / "fixtures"
ACTIVITIES = FIXTURES / "seed_activities.py"
COMMAND = (sys.executable, "-m", "acts_celery")
DEADLINE_SECONDS = 60.0
AT_ONCE = 3
STDERR_LIMIT_BYTES = 10_000
IMPATIENT = "acts: no worker is known to serve "
UNREACHABLE = ("--broker", "redis://127.0.0.1:1/0", "--redis", "redis://127.0.0.1:1/0")


@dataclass(frozen=True)
class Finished:
    """One finished command: its arguments, exit code and both outputs."""

    arguments: tuple[str, ...]
    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The whole of stdout as one JSON document; anything else on stdout is a failure."""
        try:
            return json.loads(self.stdout)
        except json.JSONDecodeError as error:
            raise AssertionError(f"stdout is not one JSON document ({error})\n{self}") from error

    @property
    def json_lines(self) -> list[Any]:
        """Every line of stdout as a JSON document of its own."""
        return [json.loads(line) for line in self.stdout.splitlines()]

    @property
    def error_lines(self) -> list[str]:
        """The lines of stderr that say something of the command: a busy machine's worker may answer too late."""
        return [line for line in self.stderr.splitlines() if line.strip() and not line.startswith(IMPATIENT)]

    def __str__(self) -> str:
        return f"acts {' '.join(self.arguments)} -> {self.code}\n{self.stdout[-3000:]}\n{self.stderr[-3000:]}"


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without any setting of acts, and the tree under test importable."""
    kept = without_settings()
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return kept | dict(extra or {})


def start(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start the command in a session of its own, its pipes open; the folder it runs in holds no `.env`."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=FIXTURES,
        env=environment(env),
        start_new_session=True,
    )


def send(process: subprocess.Popen[bytes], submission: object) -> None:
    """Hand the command its submission without waiting for anything."""
    assert process.stdin is not None
    process.stdin.write(encoded(submission))
    process.stdin.close()
    process.stdin = None


def finish(process: subprocess.Popen[bytes], *, stdin: bytes = b"") -> Finished:
    """Feed the command, wait for it and for the end of its pipes, and hold it to what every command owes."""
    try:
        stdout, stderr = process.communicate(stdin, timeout=DEADLINE_SECONDS)
    except subprocess.TimeoutExpired as error:
        process.kill()
        stdout, stderr = process.communicate()
        raise AssertionError(
            f"{process.args!r} did not end in {DEADLINE_SECONDS} s\n{stdout[-3000:]!r}\n{stderr[-3000:]!r}"
        ) from error
    arguments = tuple(str(part) for part in process.args)[len(COMMAND) :]  # type: ignore[union-attr]  # a list here
    return _without_traceback(Finished(arguments, process.returncode, stdout.decode("utf-8"), stderr.decode("utf-8")))


def acts(*arguments: str, stdin: object = None, env: Mapping[str, str] | None = None) -> Finished:
    """Run one command to its end. `stdin` may be bytes, sent as they are, or a value, sent as JSON."""
    try:
        code, stdout, stderr = forks.run(
            arguments, env=environment(env), folder=FIXTURES, stdin=encoded(stdin), timeout_seconds=DEADLINE_SECONDS
        )
    except forks.TimedOut:
        raise AssertionError(f"acts {' '.join(arguments)} did not end in {DEADLINE_SECONDS} s") from None
    return _without_traceback(Finished(arguments, code, stdout.decode("utf-8"), stderr.decode("utf-8")))


def acts_afresh(*arguments: str, stdin: object = None, env: Mapping[str, str] | None = None) -> Finished:
    """The same in an interpreter of its own, waiting for the end of its pipes too: nothing of it may live on."""
    return finish(start(*arguments, env=env), stdin=encoded(stdin))


def at_once(commands: Iterable[Callable[[], Finished]]) -> list[Finished]:
    """What each command said, in their order, run a few at a time: starting Python is what takes long."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda command: command(), commands))


def encoded(content: object) -> bytes:
    """What is sent for a submission: bytes as they are, nothing for None, JSON for the rest."""
    if content is None:
        return b""
    if isinstance(content, bytes):
        return content
    return json.dumps(content, ensure_ascii=False).encode()


def run_embedded(
    submission: object, *, activities: Path = ACTIVITIES, env: Mapping[str, str] | None = None
) -> Finished:
    """`acts run - --json` with no broker configured: the command brings its own server and worker."""
    return acts("run", "-", "--json", "--activities", str(activities), stdin=submission, env=env)


def assert_refused(result: Finished, *, codes: tuple[int, ...] = (2,)) -> None:
    """What every refused command owes: its exit code, short errors on stderr, stdout for machines only."""
    assert result.code in codes, result
    assert result.error_lines, result
    assert len(result.stderr.encode()) < STDERR_LIMIT_BYTES
    if result.stdout.strip():
        assert isinstance(result.json, dict)


def _without_traceback(result: Finished) -> Finished:
    assert "Traceback" not in result.stdout + result.stderr, result
    return result


def completed(result: Finished) -> Any:
    """The document printed by a run that completed (exit 0)."""
    assert result.code == 0, result
    document = result.json
    assert document["status"] == "completed", result
    return document


def values(document: Any, instance: str | None = None) -> dict[str, Any]:
    """Kind -> folded value as a reader in `instance` (or outside all) sees it; empty kinds left out.

    INTERFACE's example prints `"global": {"input": {}}` for a context without any input, so a kind that folds
    to `{}` and one that is not there are taken for the same.
    """
    held = document["global"] if instance is None else document["instances"][instance]
    return {kind: value for kind, value in held.items() if value != {}}


def statuses(document: Any) -> list[str]:
    """The calls' statuses in the order of the solution."""
    return [call["status"] for call in sorted(document["calls"], key=lambda call: int(call["index"]))]
