"""`python -m tests.agentdojo`: the figures of docs/trust.md, as JSON. Without any model.

With `--model NAME` the same tasks are given to a model, through the loop and a worker: how many it does, how often a
person is asked, and what attacks come to. `ACTS_MODEL_BASE_URL` and the key are as for `acts worker`.
"""

from __future__ import annotations

import argparse
import json
import sys

from .figures import all_figures
from .loops import loops, measured
from .suites import NotInstalled, suites


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.agentdojo", description=__doc__)
    parser.add_argument("--model", help="as ACTS_MODEL, such as openai:NAME; without it no model is asked")
    parser.add_argument("--suite", nargs="+", help="of workspace, travel, banking, slack; by default all; with --model")
    parser.add_argument("--tasks", type=int, help="the first so many tasks of a suite; with --model")
    parser.add_argument("--attacks", type=int, help="the first so many attacks on a task; with --model")
    chosen = parser.parse_args()
    limits = (chosen.suite, chosen.tasks, chosen.attacks)
    if chosen.model is None and limits != (None, None, None):
        parser.error("--suite, --tasks and --attacks are for --model")
    try:
        if unknown := sorted(set(chosen.suite or ()) - set(suites())):
            parser.error(f"no suite {', '.join(unknown)}: choose of {', '.join(suites())}")
        if chosen.model is None:
            found: object = all_figures()
        else:
            with loops(model=chosen.model) as running:
                names = chosen.suite or list(suites())
                found = [measured(running, name, most_tasks=limits[1], most_attacks=limits[2]) for name in names]
        print(json.dumps(found, indent=2, ensure_ascii=False))
    except NotInstalled as failure:
        print(f"{failure}\nIt needs a package index, once.", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
