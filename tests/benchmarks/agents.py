"""Ten steps of an agent, with kill -9 when each of them is begun for the first time: what runs how often.

    python -m tests.benchmarks.agents

prints the table of docs/frameworks.md. The peers run one process after another until one of them ends by itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.benchmarks.environment import ROOT, peers_bin
from tests.worker.fixtures.ten_steps import PLAN
from tests.worker.test_hosted_agents import PACKAGES, killed

MOST_STARTS: Final = 50
OURS: Final = dict(
    zip(PACKAGES, ("pydantic-ai here", "OpenAI Agents SDK here", "LangGraph here"), strict=True),
)
PEERS: Final = {
    "dbos_agents": "pydantic-ai on DBOS, SQLite",
    "dbos_agents step": "the same, its tool rewritten as a step of DBOS",
    "langgraph_agents": 'LangGraph, SQLite checkpointer, `durability="sync"`',
    "langgraph_agents async": 'the same, `durability="async"`, its default',
}


def ours(name: str, folder: Path) -> bool:
    """Whether one of our agents has ended well."""
    with killed(name, folder) as (backend, clerk):
        return (
            backend.client.submit_document(clerk.request("Refund them.")).wait(timeout_seconds=500).status
            == "completed"
        )


def peer(name: str, folder: Path) -> bool:
    """Whether a peer has ended well."""
    module, *arguments = name.split()
    command = [str(peers_bin() / "python"), "-m", f"tests.benchmarks.peers.{module}", *arguments]
    env = {**os.environ, "AGENT_FOLDER": str(folder)}
    for _ in range(MOST_STARTS):
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
        if done.returncode >= 0:
            print(done.stderr[-500:] if done.returncode else done.stdout, file=sys.stderr)
            return not done.returncode
    return False


def row(name: str, title: str, run: Callable[[str, Path], bool]) -> str:
    """A line of the table."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        ended = run(name, Path(folder))
        seconds = time.monotonic() - began
        steps = (Path(folder) / "steps.txt").read_text(encoding="utf-8").splitlines()
        kills = len([*Path(folder).glob("*.begun")])
    requests = sum(step.startswith("model") for step in steps)
    return f"| {title} | {kills} | {requests} | {len(steps) - requests} | {'yes' if ended else 'no'} | {seconds:.0f} |"


def main() -> None:
    """Print the table."""
    tools = sum(map(len, PLAN))
    print(f"| agent | kills | requests to the model (of {len(PLAN)}) | tools executed (of {tools}) | ended | seconds |")
    print("|---|---|---|---|---|---|")
    for sides, run in ((OURS, ours), (PEERS, peer)):
        for name, title in sides.items():
            print(row(name, title, run), flush=True)


if __name__ == "__main__":
    main()
