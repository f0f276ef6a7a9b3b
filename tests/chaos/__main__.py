"""Random chaos for as long as one likes: `make chaos` or `python -m tests.chaos --seconds 3600 --seed 7`.

Rounds of a minute: submissions under way, one fault after the other, then rest and the audit. The report goes to
stdout, progress to stderr. Exit code 0 means that nothing was lost, doubled, wrong, stuck or left behind, and no limit
exceeded.
"""

from __future__ import annotations

import argparse
import json
import secrets
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path

from tests.security.rabbitmq import rabbitmq_server

from .faults import BrokerConnectionsClosed, BrokerShortOfMemory, BrokerStopped, Fault
from .report import Report
from .rounds import limited_round, random_round
from .site import FOUR, POSTS, Site


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the rounds; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, help="how long (default 300)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10_000), help="default: drawn, and printed")
    parser.add_argument("--round", type=int, default=0, help="the round to begin with (default 0)")
    parser.add_argument("--round-seconds", type=float, default=60, help="how long faults strike before each audit")
    parser.add_argument("--folder", type=Path, help="where logs and the server's data are kept; default: nowhere")
    parser.add_argument(
        "--rabbitmq", action="store_true", help="with a RabbitMQ for the broker, which faults strike, too"
    )
    parser.add_argument(
        "--limits",
        action="store_true",
        help="four workers of two processes that are killed, and a server, while calls have rates, keys and slots",
    )
    parser.add_argument("--json", action="store_true", help="machine output")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    report = Report(options.seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="acts-chaos-")))
        broker, at_broker = _rabbitmq(stack, folder / "rabbitmq") if options.rabbitmq else (None, ())
        posts = FOUR if options.limits else POSTS
        site = stack.enter_context(Site(options.folder or folder, posts, broker_url=broker, is_limited=options.limits))
        ends_at = time.monotonic() + options.seconds
        for number in count(options.round):
            command = "".join(f"--{name} " for name in ("rabbitmq", "limits") if getattr(options, name))
            command += f"--seed {options.seed} --round {number} --round-seconds {options.round_seconds:g} --seconds 1"
            print(f"round {number}: {shlex.join([sys.executable])} -m tests.chaos {command}", file=sys.stderr)
            if options.limits:
                round_ = limited_round(site, options.seed, number, seconds=options.round_seconds)
            else:
                round_ = random_round(site, options.seed, number, seconds=options.round_seconds, at_broker=at_broker)
            report.add(round_)
            print(*_summary(round_.audit.findings, len(round_.incidents)), sep="\n", file=sys.stderr, flush=True)
            if time.monotonic() >= ends_at:
                break
            site.turn_over()
    if options.json:
        print(json.dumps({**report.to_dict(), "findings": [vars(finding) for finding in report.findings]}, indent=1))
    else:
        print(*report.table(), sep="\n")
    return 1 if report.findings else 0


def _rabbitmq(stack: ExitStack, folder: Path) -> tuple[str, Sequence[Fault]]:
    """The address of a RabbitMQ that lasts as long as the rounds, and what may go wrong with it."""
    folder.mkdir()
    port = stack.enter_context(rabbitmq_server(folder))
    faults: Sequence[Fault] = (
        BrokerStopped(folder),
        BrokerStopped(folder, 5.0),
        BrokerConnectionsClosed(folder),
        BrokerShortOfMemory(folder),
    )
    return f"amqp://guest:guest@127.0.0.1:{port}//", faults


def _summary(findings: Sequence[object], incidents: int) -> list[str]:
    return [f"  {incidents} faults, {len(findings)} findings", *(f"  {finding}" for finding in findings)]


if __name__ == "__main__":
    sys.exit(main())
