"""The evaluator's word on the whole data set: which flows are valid, what they yield, and how many are which.

`python -m tests.nestful.verdicts` prints it.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .convert import convert
from .evaluator import Expectation, Fault, evaluate, faults
from .source import Dataset, Flow, find_data, load


@dataclass(frozen=True)
class Verdicts:
    """The data set with the evaluator's verdict on every flow, each computed once."""

    dataset: Dataset

    @cached_property
    def faults(self) -> Mapping[str, list[Fault]]:
        """Instance -> what is wrong with its flow."""
        return {flow.instance: faults(flow, self.dataset.tools) for flow in self.dataset.flows}

    @cached_property
    def valid(self) -> list[Flow]:
        """The flows that must be accepted."""
        return [flow for flow in self.dataset.flows if not self.faults[flow.instance]]

    @cached_property
    def expected(self) -> Mapping[str, Expectation]:
        """Instance -> what its flow must leave behind; valid flows only."""
        return {flow.instance: evaluate(flow, self.dataset.tools) for flow in self.valid}

    def submission(self, flows: Iterable[Flow]) -> dict[str, Any]:
        """The converted submission of some of the flows."""
        return convert(flows, self.dataset.tools)

    def census(self) -> dict[str, Any]:
        """How many flows and calls are of which kind."""
        invalid = [found for found in self.faults.values() if found]
        return {
            "sequences": len(self.dataset.flows),
            "calls": sum(len(flow.calls) for flow in self.dataset.flows),
            "valid sequences": len(self.valid),
            "valid calls": sum(len(flow.calls) for flow in self.valid),
            "invalid sequences": len(invalid),
            "faulty calls": sum(len({fault.position for fault in found}) for found in invalid),
            "invalid by reasons": dict(
                Counter(" + ".join(sorted({fault.reason for fault in found})) for found in invalid)
            ),
            "statuses": dict(Counter(outcome.status for one in self.expected.values() for outcome in one.outcomes)),
            "valid sequences by worst status": dict(Counter(_worst(one) for one in self.expected.values())),
        }


def numbered(flows: Iterable[Flow]) -> Iterator[tuple[int, Flow, int]]:
    """Each call of a submission made of `flows`: its index there, its flow, its position in the flow."""
    everyone = ((flow, position) for flow in flows for position in range(len(flow.calls)))
    for index, (flow, position) in enumerate(everyone):
        yield index, flow, position


def _worst(expected: Expectation) -> str:
    statuses = {outcome.status for outcome in expected.outcomes}
    return next(status for status in ("failed", "skipped", "done") if status in statuses)


def main() -> int:
    """Print the census, then a line per fault and per call that will not be done; 2 when there is no data."""
    folder = find_data()
    if folder is None:
        print("no NESTFUL data: name its folder in ACTS_NESTFUL", file=sys.stderr)
        return 2
    verdicts = Verdicts(load(folder))
    print(json.dumps(verdicts.census(), indent=1))
    for flow in verdicts.dataset.flows:
        for fault in verdicts.faults[flow.instance]:
            name = flow.calls[fault.position].name
            print(f"{flow.instance} call {fault.position} {name}: {fault.reason}: {fault.detail}")
    for flow in verdicts.valid:
        for position, outcome in enumerate(verdicts.expected[flow.instance].outcomes):
            if outcome.status != "done":
                name = flow.calls[position].name
                print(f"{flow.instance} call {position} {name}: {outcome.status}: {outcome.why}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
