"""`python -m tests.agentdojo`: the figures of docs/internals/trust.md, as JSON. Without any model.

With `--blind` those of the two suites in `tests.agentdojo.blind`; with `--hosts` those of an operator who lists hosts.

With `--model NAME` the same tasks are given to a model, through the loop and a worker: how many it does, how often a
person is asked, and what attacks come to. `ACTS_MODEL_BASE_URL` and the key are as for `acts worker`. Ctrl-C ends it
with what was found so far. `--recording FILE` keeps the answers: the same command goes on from there, and with
`--model scripted:FILE` anybody repeats it without the model. Each suite says the `model` that its figures are of.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Final

from acts_celery import WorkerError

from .figures import all_figures
from .labels import list_hosts
from .loops import Measured, NotAnswered, loops, measure
from .suites import NotInstalled, suites

INTERRUPTED: Final = 130


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.agentdojo", description=__doc__)
    parser.add_argument("--model", help="as ACTS_MODEL, such as openai:NAME; without it no model is asked")
    parser.add_argument("--suite", nargs="+", help="of workspace, travel, banking, slack; by default all; with --model")
    parser.add_argument("--tasks", type=int, help="the first so many tasks of a suite; with --model")
    parser.add_argument("--attacks", type=int, help="the first so many attacks on a task; with --model")
    parser.add_argument("--blind", action="store_true", help="the two suites that were made blindly; without --model")
    parser.add_argument("--hosts", nargs="+", default=[], help="hosts that the operator lists; without --model")
    parser.add_argument("--recording", metavar="FILE", help="keeps the answers, and asks for none twice; with --model")
    chosen = parser.parse_args()
    limits = (chosen.suite, chosen.tasks, chosen.attacks)
    if chosen.model is not None and (chosen.blind or chosen.hosts):
        parser.error("--blind and --hosts are without --model")
    if chosen.model is None and (limits != (None, None, None) or chosen.recording is not None):
        parser.error("--suite, --tasks, --attacks and --recording are for --model")
    try:
        if unknown := sorted(set(chosen.suite or ()) - set(suites())):
            parser.error(f"no suite {', '.join(unknown)}: choose of {', '.join(suites())}")
        if chosen.model is None:
            list_hosts(*chosen.hosts)
            print(_text(all_figures(blind=chosen.blind)))
            return 0
        return _measured(chosen.model, chosen.recording, chosen.suite or list(suites()), limits[1:])
    except NotInstalled as failure:
        print(f"{failure}\nIt needs a package index, once.", file=sys.stderr)
        return 3


def _measured(model: str, recording: str | None, names: Sequence[str], most: tuple[int | None, int | None]) -> int:
    """Print what a model makes of suites, also where that is stopped."""
    found, code = [Measured(name) for name in names], 0
    try:
        with loops(model=model, **({"model_recording": recording} if recording is not None else {})) as running:
            for one in found:
                measure(running, one, most_tasks=most[0], most_attacks=most[1])
    except (NotAnswered, WorkerError) as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped: the figures are of what was done before", file=sys.stderr)
        code = INTERRUPTED
    print(_text([{"model": model, **one.to_dict()} for one in found if one.tasks]))
    return code


def _text(found: object) -> str:
    return json.dumps(found, indent=2, ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(main())
