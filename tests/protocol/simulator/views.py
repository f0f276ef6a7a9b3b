"""Views: a run and its lanes as one process sees them, read from journals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

from acts_celery.protocol.engine.events import Outcome, RuleGiven, RuleRevoked, Status
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.run_rules import RunRules, UserWords
from acts_celery.protocol.state.fold import Fold

from .log import Entry, Lane, Noted, Result, Steps, Undone, effective

if TYPE_CHECKING:
    from .world import World


class RunView:
    """What the lanes of a run share in a process: the global values and the statuses of global calls."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.fold, self.statuses, self.seen = Fold(), dict[int, Status](), 0
        self.rules = RunRules(words=UserWords(world.given.get(None, ())))
        for message in world.given.get(None, ()):
            self.fold.append(message, "context")

    def catch_up(self) -> Steps:
        """Read on in the global journal; others of the process may do so at the same time."""
        position = self.seen
        entries = self.world.log.journals[None][position:]
        yield
        for entry in entries[self.seen - position :]:
            if isinstance(entry, Undone):
                self.fold.withdraw(frozenset(entry.event.calls))
                for index in entry.event.calls:
                    del self.statuses[index]
            elif isinstance(entry, Entry):
                append(self.fold, entry.outcome)
                self.statuses[entry.outcome.index] = entry.outcome.status
            elif isinstance(entry.event, RuleGiven):
                self.rules.give(f"{self.seen}-0", entry.event.rule)
            elif isinstance(entry.event, RuleRevoked):
                self.rules.revoke(f"{self.seen}-0", entry.event.revoked)
            self.seen += 1


class LaneView:
    """One lane: the values its reader sees, and the state of its calls."""

    def __init__(
        self,
        run: RunView,
        lane: Lane,
        entries: Sequence[Entry | Undone | Noted],
        running: Sequence[int],
        mark: int | None = None,
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
        self.execution = Execution.of(plan, laid_out, self.fold, rules=run.rules)
        self.awaited = world.awaited[lane]
        self.again = Counter(index for entry in entries if isinstance(entry, Undone) for index in entry.event.calls)
        """How often each call had ended and was undone."""
        self.was_retried = any(isinstance(entry, Undone) for entry in entries)
        self._feed(entries)
        for index in running:
            self.execution.record(index, Status.RUNNING)
        self.note_global()

    @classmethod
    def open(cls, run: RunView, lane: Lane) -> Generator[None, None, LaneView]:
        """Read a lane's journal and who is at work on what, at one moment; where calls were undone, then what the lane
        shares with others.
        """
        log = run.world.log
        entries, running, mark = list(log.journals[lane]), run.world.running(lane), log.published.get(lane)
        yield
        if any(isinstance(entry, Undone) for entry in entries):
            yield from run.catch_up()
        return cls(run, lane, entries, running, mark)

    def catch_up(self) -> Generator[None, None, bool]:
        """Read what has come since the lane was left; False where calls of it were undone."""
        entries = self.run.world.log.journals[self.lane][self.seen :]
        yield
        if any(isinstance(entry, Undone) for entry in entries):
            return False
        self._feed(entries)
        if self.waits_for_global:
            yield from self.run.catch_up()
            self.note_global()
        return True

    def is_of_now(self, result: Result) -> bool:
        """Whether it is of the call as it is carried out now, and not from before it was undone."""
        return result.again == self.again[result.index]

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

    def _feed(self, entries: Sequence[Entry | Undone | Noted]) -> None:
        for entry in effective(entries):
            if isinstance(entry, Entry):
                self.apply(entry.outcome)
            elif isinstance(entry, Noted) and not isinstance(entry.event, RuleGiven | RuleRevoked):
                self.execution.apply(entry.event)
        self.seen += len(entries)


def append(fold: Fold, outcome: Outcome) -> None:
    """Take in the messages of a call's end."""
    for message in outcome.messages:
        fold.append(message, f"result of call {outcome.index}", outcome.index)
