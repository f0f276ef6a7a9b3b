"""Views: a run and its lanes as one process sees them, read from journals."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from acts_celery.protocol.engine.decisions import Outcome
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.engine.statuses import Status
from acts_celery.protocol.state.fold import Fold

from .log import Entry, Lane, Steps

if TYPE_CHECKING:
    from .world import World


class RunView:
    """What the lanes of a run share in a process: the global values and the statuses of global calls."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.fold, self.statuses, self.seen = Fold(), dict[int, Status](), 0
        for message in world.given.get(None, ()):
            self.fold.append(message, "context")

    def catch_up(self) -> Steps:
        """Read on in the global journal; others of the process may do so at the same time."""
        position = self.seen
        entries = self.world.log.journals[None][position:]
        yield
        for entry in entries[self.seen - position :]:
            append(self.fold, entry.outcome)
            self.statuses[entry.outcome.index] = entry.outcome.status
            self.seen += 1


class LaneView:
    """One lane: the values its reader sees, and the state of its calls."""

    def __init__(
        self, run: RunView, lane: Lane, entries: Sequence[Entry], running: Sequence[int], mark: int | None = None
    ) -> None:
        world = run.world
        laid_out = world.plan.lanes[lane]
        self.run, self.lane, self.seen, self.global_seen = run, lane, 0, run.seen
        self.mark = mark
        """Of the lane's published task, as it was when we read who is at work."""
        self.fold = Fold(run.fold) if lane is not None else Fold()
        for message in world.given.get(lane, ()):
            self.fold.append(message, "context")
        plan = world.plan
        self.execution = Execution.of(plan, laid_out, self.fold)
        self.awaited = world.awaited[lane]
        self._feed(entries)
        for index in running:
            self.execution.record(index, Status.RUNNING)
        self.note_global()

    @classmethod
    def open(cls, run: RunView, lane: Lane) -> Generator[None, None, LaneView]:
        """Read a lane's journal and who is at work on what, at one moment."""
        log = run.world.log
        entries, running, mark = list(log.journals[lane]), run.world.running(lane), log.published.get(lane)
        yield
        return cls(run, lane, entries, running, mark)

    def catch_up(self) -> Steps:
        """Read what has come since the lane was left."""
        entries = self.run.world.log.journals[self.lane][self.seen :]
        yield
        self._feed(entries)
        if self.waits_for_global:
            yield from self.run.catch_up()
            self.note_global()

    def apply(self, outcome: Outcome) -> None:
        """Take in the end of a call."""
        append(self.fold, outcome)
        assert all(self.execution.apply(event) for event in outcome.events), "no call ends twice"

    def note_global(self) -> None:
        """Take in what the run's view has learnt of global calls."""
        self.global_seen = self.run.seen
        for index in self.awaited & self.run.statuses.keys():
            self.execution.record(index, self.run.statuses[index])

    @property
    def waits_for_global(self) -> bool:
        """Whether a global call has still to come for some call of the lane."""
        return not self.awaited <= self.run.statuses.keys()

    def _feed(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.apply(entry.outcome)
        self.seen += len(entries)


def append(fold: Fold, outcome: Outcome) -> None:
    """Take in the messages of a call's end."""
    for message in outcome.messages:
        fold.append(message, f"result of call {outcome.index}")
