"""Kills workers at every step of the life of calls that are carried out at most once, and counts effects (SPEC R4.11).

    python -m tests.chaos.once --kills 10000

Each call kills its worker by SIGKILL at a step of its own: before its beginning is written, after that, in its code
before and after its effect, when its code has returned, when its result is written. Calls at work beside it die with
it. A person settles what is asked by what the ledger says; then each effect has to have happened once.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from typing import Any

from acts_celery import Run
from acts_celery.broker_config import EmbeddedServer
from tests.worker.backend import FIXTURES, Backend, Meeting, meeting_url, settings_apart
from tests.worker.fixtures.ledger_activities import KNOWN, STEPS

TOOLS = ("pay", "payAsync", "payFar")


def main() -> None:
    """Run batches until so many workers were killed, and print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=50, help="calls under way at a time")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=7)
    asked = parser.parse_args()
    choose, found, began = random.Random(asked.seed), Counter[str](), monotonic()
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        how = {"lease_seconds": 1.5, "sweep_interval_seconds": 0.2}
        settings = settings_apart(server, "once", activities=(str(FIXTURES / "ledger_activities.py"),), **how)
        backend, over = Backend(settings, Meeting(meeting_url(server)), folder), threading.Event()
        crew = [threading.Thread(target=keep_alive, args=(backend, over)) for _ in range(asked.workers)]
        for member in crew:
            member.start()
            stack.callback(member.join)
        stack.callback(over.set)
        while killed(backend) < asked.kills:
            found += batch(backend, [choose.choice(STEPS) for _ in range(asked.batch)], choose)
            print(f"{killed(backend)} kills in {monotonic() - began:.0f} s: {dict(found)}", flush=True)
    if found["twice"] or found["lost"] or found["not asked"]:
        raise SystemExit(1)


def killed(backend: Backend) -> int:
    """How many workers have killed themselves."""
    number: Any = backend.meeting.redis.get("kills")
    return int(number or 0)


def keep_alive(backend: Backend, over: threading.Event) -> None:
    """Start a worker whenever the one before has died."""
    while not over.is_set():
        with backend.worker() as worker:
            while worker.poll() is None and not over.wait(0.05):
                pass


def batch(backend: Backend, steps: list[str], choose: random.Random) -> Counter[str]:
    """One run for each step, settled where a person is asked; what became of them."""
    left: dict[str, tuple[Run, str]] = {}
    for step in steps:
        call = {"_tool": choose.choice(TOOLS), "name": f"{choose.getrandbits(64):x}", "step": step}
        run = backend.client.submit(solution={"calls": [{**call, "_outputPath": "†state.paid"}]})
        left[run.id] = run, step
    found, asked = Counter[str](), set[str]()
    while left:
        for run, step in tuple(left.values()):
            for one in run.held():
                asked.add(run.id)
                effects = counted(backend, run)
                found["asked"] += 1
                found["twice"] += effects > 1
                run.settle(one, *(("done",) if effects else ("again",)), **({"value": "paid"} if effects else {}))
            if run.status()["status"] == "completed":
                del left[run.id]
                found["done"] += 1
                effects = counted(backend, run)
                found["twice"] += effects > 1
                found["lost"] += effects < 1
                found["not asked"] += step not in KNOWN and run.id not in asked
    return found


def counted(backend: Backend, run: Run) -> int:
    """The effects of a run's call, by the ledger."""
    number: Any = backend.meeting.redis.hget("effects", f"{run.id}:0")
    return int(number or 0)


if __name__ == "__main__":
    main()
