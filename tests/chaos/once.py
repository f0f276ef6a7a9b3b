"""Kills workers at every step of the life of calls that run at most once, and counts effects (SPEC R4.11).

    python -m tests.chaos.once --kills 10000

Each call has its process killed by SIGKILL at a step of its own: before its beginning is written, after that, in its
code before and after its effect, when its code has returned, when its result is written. Calls at work beside it die
with it. A person settles what is asked by what the ledger says; then each effect has to have happened once.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

from acts_celery import Run
from acts_celery.broker_config import EmbeddedServer
from tests.worker.backend import FIXTURES, Backend, Meeting, meeting_url, settings_apart
from tests.worker.fixtures.ledger import KNOWN, STEPS

TOOLS: Final = ("payHere", "payAsync", "payFar")
WRONG: Final = ("twice", "lost", "not asked")
"""What may not be counted."""
_LOOK_SECONDS: Final = 0.3


def main() -> None:
    """Run batches until so many processes were killed, and print what was counted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no batch after this time")
    parser.add_argument("--batch", type=int, default=100, help="calls under way at a time")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--lease", type=float, default=5.0, help="seconds until a silent process counts as dead")
    parser.add_argument("--seed", type=int, default=7)
    asked = parser.parse_args()
    choose, found, began = random.Random(asked.seed), Counter[str](), monotonic()
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        backend = ledger_backend(server, Meeting(meeting_url(server)), folder, lease_seconds=asked.lease)
        stack.enter_context(kept_alive(backend, asked.processes))
        while found["kills"] < asked.kills and monotonic() - began < asked.seconds:
            found += batch(backend, asked.batch, choose, patience_seconds=2 * asked.lease)
            found["kills"] = killed(backend)
            print(f"{monotonic() - began:.0f} s: {dict(sorted(found.items()))}", flush=True)
    if any(found[name] for name in WRONG):
        raise SystemExit(1)


def ledger_backend(server: EmbeddedServer, meeting: Meeting, folder: Path, *, lease_seconds: float) -> Backend:
    """A backend whose activities write into the ledger."""
    how = {"lease_seconds": lease_seconds, "sweep_interval_seconds": 0.2}
    activities = (str(FIXTURES / "ledger_activities.py"),)
    return Backend(settings_apart(server, "once", activities=activities, **how), meeting, folder)


def killed(backend: Backend) -> int:
    """How many processes were killed."""
    number: Any = backend.meeting.redis.get("kills")
    return int(number or 0)


@contextmanager
def kept_alive(backend: Backend, processes: int) -> Iterator[None]:
    """Have so many workers, another one in place of each that has died."""
    over = threading.Event()

    def keep() -> None:
        while not over.is_set():
            with backend.worker() as worker:
                while worker.poll() is None and not over.wait(_LOOK_SECONDS):
                    pass

    keepers = [threading.Thread(target=keep) for _ in range(processes)]
    for keeper in keepers:
        keeper.start()
    try:
        yield
    finally:
        over.set()
        for keeper in keepers:
            keeper.join()


def batch(backend: Backend, number: int, choose: random.Random, *, patience_seconds: float) -> Counter[str]:
    """Submit so many calls, each of which is killed at a step, settle what is asked, and count what became of them.

    The person who settles waits before a call begins again: a process that is slow, and not dead, may still begin it.
    """
    left: dict[str, tuple[Run, str]] = {}
    for at in range(number):
        step = STEPS[at % len(STEPS)]
        call = {"_tool": choose.choice(TOOLS), "name": f"{choose.getrandbits(64):x}", "step": step}
        run = backend.client.submit(solution={"calls": [{**call, "_outputPath": "†state.paid"}]})
        left[run.id] = run, step
    found, asked = Counter[str](), dict[str, float]()
    while left:
        for run, step in tuple(left.values()):
            for one in run.held():
                found["asked"] += run.id not in asked
                since = asked.setdefault(run.id, monotonic())
                if counted(backend, run):
                    run.settle(one, "done", value="paid")
                elif monotonic() - since >= patience_seconds:
                    run.settle(one, "again")
            if run.status()["status"] == "completed":
                del left[run.id]
                effects = counted(backend, run)
                found["calls"] += 1
                found["twice"] += effects > 1
                found["lost"] += effects < 1
                found["not asked"] += step not in KNOWN and run.id not in asked
        sleep(_LOOK_SECONDS)
    return found


def counted(backend: Backend, run: Run) -> int:
    """The effects of a run's call, by the ledger."""
    number: Any = backend.meeting.redis.hget("effects", f"{run.id}:0")
    return int(number or 0)


if __name__ == "__main__":
    main()
