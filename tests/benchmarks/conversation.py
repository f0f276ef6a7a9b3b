"""What a long conversation costs: `python -m tests.benchmarks conversation` (SPEC R13.9).

One loop asks a model `TICKS` times, and each time a call brings `RESULT_BYTES` more. Measured are the log, what crosses
Redis, the worker's processor time for a tick, early and late, and its memory; then again while the worker is killed
`KILLS` times, and in LangGraph, as it comes and with its delta channel. Nothing here is asserted.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, Final

from redis import Redis

from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.client.run import Run
from acts_celery.worker.store.keys import Keys
from tests.benchmarks.environment import ROOT, peers_bin
from tests.worker.backend import Backend, Meeting, meeting_url, settings_apart

TICKS: Final = 1_000
PROMPT_BYTES: Final = 800_000
RESULT_BYTES: Final = 5_000
SPAN: Final = 20
"""Ticks of which the processor time is the mean."""
KILLS: Final = 10
LIMITS: Final = ("run_bytes", "call_bytes", "tokens", "ticks", "loop_calls", "loop_seconds")
CODE: Final = '''
import json
from acts_celery import Answer, activity, model, Usage

@activity
def page(number: int) -> str:
    """A page of a document."""
    return (f"{number} " * %(size)d)[:%(size)d]

@model("reader")
def reader(messages, schema, config):
    tick = len(messages) // 2 - 1
    call = {"_tool": "page", "number": tick, "_outputPath": f"\u2020state.p{tick}"}
    said = {"calls": [call], "output": None} if tick < %(ticks)d else {"calls": [], "output": tick}
    return Answer(json.dumps(said), "reader", Usage(200_000 + 1_500 * tick, 30))
'''


@dataclass(frozen=True)
class Figures:
    """What one conversation has cost."""

    said: int
    """The bytes of the prompt and of all results."""
    log: int
    sent: int
    """The bytes that went to Redis, of messages and of the log; of LangGraph, to its file."""
    received: int
    ms: list[float]
    """The worker's processor time for each tick; of ticks that were not told apart, all of it is that of the first."""
    memory: int
    """The most bytes that a process of the worker has held."""


def measure(ticks: int) -> Iterator[str]:
    """Hold one conversation of so many ticks, and say what it costs."""
    with TemporaryDirectory() as folder:
        with EmbeddedServer() as server:
            yield from _lines(f"{ticks:,} ticks", hold(server, Path(folder), ticks))
        with EmbeddedServer() as server:
            kills, log = survive(server, Path(folder), ticks)
    yield f"its worker killed {kills} times: completed, log {log / _said(ticks):.2f} times what is said"
    for name, channel in (("LangGraph, SQLite", ()), ("LangGraph, SQLite, delta channel", ("delta",))):
        with TemporaryDirectory() as folder:
            yield from _lines(name, langgraph(Path(folder), ticks, *channel))


def hold(server: EmbeddedServer, folder: Path, ticks: int) -> Figures:
    """Hold one conversation on a server that nobody else uses."""
    backend, run = _begin(server, folder, ticks)
    keys = Keys(backend.settings.key_prefix, run.id)
    with backend.worker() as process:
        before, spent = _traffic(backend.redis), [_cpu(process.pid)]
        while (tick := _tick(backend.redis, keys)) is not None:
            spent += [_cpu(process.pid)] * (1 + tick - len(spent))
            time.sleep(0.05)  # what is asked counts, too
        sent, received = (after - at for at, after in zip(before, _traffic(backend.redis), strict=True))
        memory = max(map(_peak, _processes(process.pid)))
        _require_completed(run)
    took = [after - at for at, after in pairwise(spent)]
    return Figures(_said(ticks), _log(backend, keys), sent, received, took, memory)


def survive(server: EmbeddedServer, folder: Path, ticks: int) -> tuple[int, int]:
    """Hold one conversation whose worker is killed again and again; how often it was, and the bytes of the log."""
    backend, run = _begin(server, folder, ticks)
    keys = Keys(backend.settings.key_prefix, run.id)
    kills = 0
    while _tick(backend.redis, keys) is not None:
        with backend.worker() as process:
            while (tick := _tick(backend.redis, keys)) is not None:
                if tick >= (1 + kills) * ticks // (1 + KILLS):
                    kills += 1
                    os.kill(process.pid, signal.SIGKILL)
                    break
                time.sleep(0.01)
    _require_completed(run)
    return kills, _log(backend, keys)


def langgraph(folder: Path, ticks: int, *channel: str) -> Figures:
    """Hold the same conversation in LangGraph."""
    sizes = map(str, (ticks, PROMPT_BYTES, RESULT_BYTES))
    command = [str(peers_bin() / "python"), "-m", "tests.benchmarks.peers.langgraph_conversation", *sizes]
    done = subprocess.run([*command, str(folder), *channel], cwd=ROOT, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    took = [after - at for at, after in pairwise(found["spent"])]
    return Figures(_said(ticks), found["log"], found["sent"], found["received"], took, found["memory"])


def _lines(name: str, found: Figures) -> Iterator[str]:
    early, late = mean(found.ms[5 : 5 + SPAN]), mean(found.ms[-SPAN:])
    yield f"{name}: {found.said / 1e6:.1f} MB said, log {found.log / found.said:.2f} times that"
    yield f"  written {found.sent / found.said:.1f} times, read {found.received / found.said:.1f} times"
    yield f"  processor time of a tick: {early:.0f} ms early, {late:.0f} ms late ({late / early:.1f} times)"
    yield f"  memory of a process: {found.memory / 1e6:.0f} MB at most"


def _begin(server: EmbeddedServer, folder: Path, ticks: int) -> tuple[Backend, Run]:
    code = folder / "reading.py"
    code.write_text(CODE % {"size": RESULT_BYTES, "ticks": ticks}, encoding="utf-8")
    limits = dict.fromkeys((f"limit_{name}" for name in LIMITS), 10**9)
    settings = settings_apart(server, "conversation", activities=(str(code),), model="reader:reader", **limits)
    backend = Backend(settings, Meeting(meeting_url(server)), folder)
    run = backend.client.submit_document(
        {
            "context": [{"type": "text", "message": "x" * PROMPT_BYTES}],
            "schema": {"type": "integer"},
            "tools": {"page": {"type": "object", "properties": {"number": {"type": "integer"}}}},
            "config": {"ticks": ticks + 1, "calls": ticks + 1, "tokens": 10**9, "seconds": 10_000},
        }
    )
    return backend, run


def _said(ticks: int) -> int:
    return PROMPT_BYTES + ticks * RESULT_BYTES


def _require_completed(run: Run) -> None:
    result = run.result()
    assert result.status == "completed", result.reason


def _log(backend: Backend, keys: Keys) -> int:
    return backend.redis.memory_usage(keys.log, samples=0) or 0


def _tick(redis: Redis, keys: Keys) -> int | None:
    """The number of the loop's tick; None once it has ended."""
    found: Any = redis.hget(keys.state, "loop")
    stage = str((found or b"").decode()).split(":")
    tick = int(stage[-1]) if stage[-1].isdecimal() else 0
    print(f"\r{tick:,} ticks", end="", file=sys.stderr, flush=True)
    return None if stage[0] == "ended" else tick


def _traffic(redis: Redis) -> list[int]:
    found: Any = redis.info("stats")
    return [int(found[name]) for name in ("total_net_input_bytes", "total_net_output_bytes")]


def _cpu(parent: int) -> float:
    """The processor time of a worker and of the processes of its pool, in ms."""
    ticks = 0
    for pid in _processes(parent):
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return 1000 * ticks / os.sysconf("SC_CLK_TCK")


def _processes(parent: int) -> list[int]:
    """A worker and the processes of its pool."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii")
    return [parent, *map(int, children.split())]


def _peak(pid: int) -> int:
    """The most bytes that a process has held."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
