"""A step of a lane: what one commit is to hold, as it is gathered."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from acts_celery.protocol.calls.elements import element_of
from acts_celery.protocol.engine.decisions import FanOut, Hold, Outcome, Start
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.schemas.work import STEP_WORK, Meter
from acts_celery.worker.process.figures import figures
from acts_celery.worker.storage.codes import Code
from acts_celery.worker.storage.commits import Committed, Delegated, Ending, Held, Rest
from acts_celery.worker.storage.held_calls import pack_hold
from acts_celery.worker.storage.spent import Spent
from acts_celery.worker.wire.attempts import Seen
from acts_celery.worker.wire.task_messages import TaskMessage

MOST: Final = 250
"""How many outcomes, and how many claims, go into one commit: its script holds up the server for as long as it runs."""
MOST_BYTES: Final = 2**20
"""A commit that holds so much takes nothing more along."""


@dataclass(slots=True)
class Step:
    """What has ended, and what is to begin."""

    meter: Meter
    worked: int
    """What the meter said when the step began."""
    outcomes: list[Outcome] = field(default_factory=list)
    rests: list[Rest] = field(default_factory=list)
    delegated: list[Delegated] = field(default_factory=list)
    starts: list[Start] = field(default_factory=list)
    holds: list[Hold | FanOut] = field(default_factory=list)
    settled: Sequence[int] = ()
    sendings: dict[int, TaskMessage] = field(default_factory=dict)
    """What is to be sent and forgotten: it goes into the outbox with its outcome, and to its queue after that."""
    spent: dict[int, Spent] = field(default_factory=dict)
    """What the calls took that were carried out."""
    codes: dict[int, Code] = field(default_factory=dict)
    """Who has carried them out, with which version of the code."""
    seen: dict[int, Seen] = field(default_factory=dict)
    """What delegates, and models, were shown of the log."""
    load: int = 0
    """The bytes of what it holds."""

    @classmethod
    def begin(cls, meter: Meter) -> Step:
        """An empty one."""
        return cls(meter, meter.units)

    def __len__(self) -> int:
        ended = len(self.outcomes) + len(self.rests) + len(self.delegated)
        return ended + len(self.starts) + len(self.holds)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to be written."""
        return not len(self) and not self.settled

    @property
    def is_full(self) -> bool:
        """Whether it takes nothing more along."""
        return len(self) >= MOST or self.load >= MOST_BYTES or self.meter.units - self.worked >= STEP_WORK

    def endings(self, execution: Execution, waking: Collection[int]) -> list[Ending]:
        """The outcomes, with what is written beside them; for those in `waking` parked lanes wait."""
        return [
            Ending(
                outcome,
                [str(place) for place in execution.missed(outcome)],
                outcome.index in waking,
                self.sendings.get(outcome.index),
                self.spent.get(outcome.index),
                self.codes.get(outcome.index),
                outcome.index not in self.spent,
                self.seen.get(outcome.index),
            )
            for outcome in self.outcomes
        ]

    def held(self) -> list[Held]:
        """The calls that are to wait for a person, or are carried out for each element."""
        return [
            Held(hold.call.index, pack_hold(hold), hold.elements if isinstance(hold, FanOut) else 0)
            for hold in self.holds
        ]

    def sent(self, committed: Committed) -> list[TaskMessage]:
        """What is in the outbox since the commit that wrote it down."""
        tasks = [self.sendings.get(outcome.index) for outcome in self.outcomes]
        return [task for task, is_ours in zip(tasks, committed.accepted, strict=True) if task is not None and is_ours]


def count_ended(outcomes: Sequence[Outcome], committed: Committed, execution: Execution) -> list[Outcome]:
    """Those of the outcomes that are in the log by this commit. Their calls are counted; an element is no call."""
    taken = zip(outcomes, committed.accepted, strict=False)  # of a run that is gone nothing is said
    ended = [outcome for outcome, is_ours in taken if is_ours]
    for outcome in ended:
        if element_of(outcome.index) is None and (call := execution.call(outcome.index)) is not None:
            figures().call_ended(call.tool, outcome.status)
    return ended
