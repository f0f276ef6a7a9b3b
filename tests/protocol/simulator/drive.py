"""One driver's time with one lane."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from acts_celery.protocol.engine.events import FINAL, CallBegun, Evidence, Hold, Outcome, Start, Status

from .log import DATE, DECIDED, Commit, Committed, Entry, Result, Steps
from .views import LaneView

if TYPE_CHECKING:
    from .world import World


class Drive:
    """Asks the core what is ready, claims it, carries it out, commits, and asks again."""

    def __init__(self, world: World, view: LaneView) -> None:
        self.world, self.view, self.lane = world, view, view.lane
        self.owner = world.next_owner()
        self.running: dict[int, Result] = {}
        """Calls in line."""
        self.ended: list[int] = []
        """Those of them that have ended."""
        self.handed_in: list[Result] = []
        """What was delivered to this drive and has no receipt yet."""
        self._deliveries: list[Result] = []
        self._results: list[Result] = []
        self._clears_mark = True
        self._is_marked = self._has_news = self._is_told = self._is_waiting = False

    @property
    def can_go(self) -> bool:
        """Whether it waits for nothing."""
        return not self._is_waiting or self._has_news or bool(self.ended)

    def deliver(self, result: Result) -> None:
        """Hand in the result of a remote call."""
        self._deliveries.append(result)
        self.handed_in.append(result)
        self._has_news = True

    def look_again(self) -> None:
        """Somebody says that there is something new in the lane."""
        self._is_told = self._has_news = True

    def run(self) -> Steps:
        """Go on until nothing more can be done here."""
        while (yield from self._step()) or self._has_news or (yield from self._release_or_continue()):
            pass

    def _step(self) -> Generator[None, None, bool]:
        yield from self._take_news()
        entries, starts, asks = self._decide()
        if entries or starts or asks:
            yield from self._commit(entries, starts, asks)
            return True
        if not self._deliveries:
            self.handed_in.clear()
        self.world.compare(self.view)
        if self.view.waits_for_global and (yield from self._park()):
            return True
        if self.running:
            yield from self._wait()
            return True
        return (yield from self._check_lost_calls())

    def _check_lost_calls(self) -> Generator[None, None, bool]:
        if not (self.view.was_retried and Status.RUNNING in self.view.execution.statuses.values()):
            return False
        before = self.view.execution.statuses
        yield from self._reload()
        return self.view.execution.statuses != before

    def _take_news(self) -> Steps:
        self._has_news = False
        if self._is_told:
            self._is_told = False
            self._clears_mark = True
            yield from self._reload()
        deliveries, self._deliveries = self._deliveries, []
        if any(map(self._is_unknown, deliveries)):
            yield from self._reload()
        self._results += deliveries

    def _is_unknown(self, result: Result) -> bool:
        is_newer = result.again > self.view.again[result.index]
        return is_newer or self.view.execution.status(result.index) in (Status.WAITING, Status.HELD)

    def _decide(self) -> tuple[list[Entry], list[Start], list[Hold]]:
        """Apply what has ended, one after the other; say what can begin, and of what a person is to be asked."""
        execution, entries, starts, asks = self.view.execution, list[Entry](), list[Start](), list[Hold]()
        results, self._results = self._results, []
        for result in results:
            if execution.status(result.index) not in FINAL and self.view.is_of_now(result):
                entries.append(self._applied(execution.finish(result.index, result.value, DATE), result.attempt))
        while decisions := execution.decide(DATE):
            for decision in decisions:
                if isinstance(decision, Hold):
                    is_asked = decision.evidence is not None or self.world.has_people
                    assert is_asked, f"call {decision.call.index} is held, and nobody is there"
                    asks.append(decision)
                elif isinstance(decision, Start):
                    starts.append(decision)
                elif isinstance(decision, Outcome):
                    entries.append(self._applied(decision, DECIDED))
        return entries, starts, asks

    def _applied(self, outcome: Outcome, attempt: int) -> Entry:
        self.view.apply(outcome)
        return Entry(outcome, attempt)

    def _commit(self, entries: Sequence[Entry], starts: Sequence[Start], asks: Sequence[Hold]) -> Steps:
        execution = self.view.execution
        goes_on = bool(self.running or starts or any(hold.rule for hold in asks))
        leaves = not goes_on and not self.view.waits_for_global
        claims = [start.call.index for start in starts]
        once = [start for start in starts if execution.is_once(start.call)]
        begins = {
            start.call.index: CallBegun(start.call.index, execution.snapshot(start), Evidence("")) for start in once
        }
        committed = yield from self._write(entries=entries, claims=claims, begins=begins, asks=asks, leaves=leaves)
        if committed.accepted:
            for start, is_claimed, is_in_doubt in zip(starts, committed.claimed, committed.doubtful, strict=True):
                execution.record(start.call.index, Status.RUNNING)
                if is_in_doubt:
                    execution.note_unknown(start.call.index, "its worker died")
                elif is_claimed:
                    self._begin(start, begins.get(start.call.index))
            for hold in asks if committed.asked else ():
                execution.apply(hold.event)
        yield
        self.world.publish(committed.woken)
        if not committed.accepted:
            # what was about to begin may rest on a result that is not the one in the log
            yield from self._reload()
            for start, is_claimed in zip(starts, committed.claimed, strict=True):
                if is_claimed:
                    self.view.execution.record(start.call.index, Status.WAITING)
        elif not (committed.is_current and committed.asked):
            yield from self._reload()
        else:
            self.view.seen = committed.seen
            yield from self._note_global(committed)

    def _begin(self, start: Start, begun: CallBegun | None) -> None:
        """Carry out a call. One that runs at most once does not begin after its lease."""
        if begun is None or self.world.log.holders.get((self.lane, start.call.index)) == self.owner:
            self._carry_out(start)
        if begun is not None:
            self.view.execution.apply(begun)

    def _carry_out(self, start: Start) -> None:
        result = self.world.carry_out(self.view, start)
        if result is None:
            return
        if start.call.is_fire_and_forget:
            self._results.append(result)
        else:
            self.running[result.index] = result

    def _release_or_continue(self) -> Generator[None, None, bool]:
        if not (self._is_marked or self._clears_mark):
            return False
        yield from self._write(leaves=True)
        if self._is_marked:
            self.look_again()
        return True

    def _wait(self) -> Steps:
        self._is_waiting = True
        yield
        self._is_waiting = False
        self._results += [self.running.pop(index) for index in sorted(self.ended)]
        self.ended.clear()

    def _park(self) -> Generator[None, None, bool]:
        committed = yield from self._write(park=True, leaves=not self.running)
        if not committed.is_current:
            yield from self._reload()
            return True
        return (yield from self._note_global(committed))

    def _write(self, **parts: Any) -> Generator[None, None, Committed]:
        """One commit, of these parts; now and then its answer is lost, and it is sent twice."""
        yield
        view = self.view
        clears_mark = view.mark if self._clears_mark else None
        commit = Commit(self.lane, self.owner, view.seen, view.global_seen, clears_mark, **parts)
        committed = self.world.log.commit(commit)
        if self.world.loses_an_answer():
            committed = self.world.log.commit(commit)
        yield
        self._clears_mark = False
        nothing_new = committed.is_current and (self.lane is None or committed.global_seen == view.global_seen)
        self._is_marked = not (commit.leaves and nothing_new)
        return committed

    def _note_global(self, committed: Committed) -> Generator[None, None, bool]:
        if self.lane is None or committed.global_seen == self.view.global_seen:
            return False
        if self.view.run.seen != committed.global_seen:
            yield from self.view.run.catch_up()
        self.view.note_global()
        return True

    def _reload(self) -> Steps:
        yield from self.view.run.catch_up()
        self.view = yield from LaneView.open(self.view.run, self.lane)
        for result in filter(self.view.is_of_now, (*self.running.values(), *self._results)):
            self.view.execution.record(result.index, Status.RUNNING)
