"""The log: what its scripts do, all of it or nothing."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from acts_celery.protocol.engine.events import (
    CallBegun,
    CallDecided,
    CallHeld,
    CallsUndone,
    Event,
    Failure,
    Hold,
    Outcome,
    RuleGiven,
    RuleRevoked,
    Ruling,
    Status,
    Success,
    effective_events,
)
from acts_celery.protocol.run_rules import RunRule

Lane = str | None
Steps = Generator[None, None, None]
DATE = "2026-11-21T00:00:00Z"
DECIDED = -1


@dataclass(frozen=True, slots=True)
class Entry:
    """A call's end in a lane's journal, by which attempt, with its messages."""

    outcome: Outcome
    attempt: int
    """DECIDED where it was not carried out."""

    @property
    def event(self) -> Event:
        """That it has ended."""
        *_, end = self.outcome.events
        return end


@dataclass(frozen=True, slots=True)
class Undone:
    """In a lane's journal: calls are carried out again (SPEC R11.8)."""

    event: CallsUndone


@dataclass(frozen=True, slots=True)
class Noted:
    """In a lane's journal: a call that runs at most once begins, its end is not known, or a person has said
    what became of it (SPEC R4.11); a call is held, or was decided on; in the global one a rule is given or revoked.
    """

    event: CallBegun | CallHeld | CallDecided | RuleGiven | RuleRevoked


Journal = list[Entry | Undone | Noted]


@dataclass(frozen=True, slots=True)
class Result:
    """What carrying out a call has given, on its way to the log."""

    index: int
    value: Success | Failure
    attempt: int
    again: int
    """How often the call had ended before and was undone."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One step of a lane."""

    lane: Lane
    owner: int
    seen: int
    """How much of the lane's journal its driver has read."""
    global_seen: int
    clears_mark: int | None = None
    """The mark of the lane's task as it was before the lane was read."""
    entries: Sequence[Entry] = ()
    claims: Sequence[int] = ()
    begins: Mapping[int, CallBegun] = field(default_factory=dict)
    """What the journal is to say of those of the claimed calls that run at most once."""
    asks: Sequence[Hold] = ()
    """Calls whose end is not known, or that others would decide on."""
    park: bool = False
    leaves: bool = False


@dataclass(frozen=True, slots=True)
class Committed:
    """What came of a commit."""

    seen: int
    """How much there is in the lane's journal now."""
    global_seen: int
    is_current: bool
    """Whether the caller had seen everything that lay in the journal before."""
    accepted: bool
    """Whether all outcomes were news to the log."""
    claimed: tuple[bool, ...]
    doubtful: tuple[bool, ...]
    """For each claim whether nobody knows how the call has ended."""
    asked: bool
    """Whether a person is asked about all that the commit asks about, or a rule has decided."""
    woken: tuple[Lane, ...]


@dataclass
class Log:
    """The journals and ledgers of all lanes, and the signs of life."""

    journals: dict[Lane, Journal]
    awaited: frozenset[int]
    """The global calls that lanes wait for."""
    size: int
    """How many calls there are."""
    ends: dict[tuple[Lane, int], Status] = field(default_factory=dict)
    holders: dict[tuple[Lane, int], int] = field(default_factory=dict)
    """Who is at work on a call, as far as his lease tells."""
    begun: dict[tuple[Lane, int], int] = field(default_factory=dict)
    """The calls that were claimed and have not ended: how much there was in the lane's journal at the last claim."""
    unknown: set[tuple[Lane, int]] = field(default_factory=set)
    """The calls of which a person is asked how they have ended."""
    settled: dict[tuple[Lane, int], int] = field(default_factory=dict)
    """The calls of which a person has said it, until they are claimed anew or have ended: how much there was in the
    lane's journal then.
    """
    retried: dict[Lane, int] = field(default_factory=dict)
    """How much there was in a lane's journal when calls of it had last been undone."""
    published: dict[Lane, int] = field(default_factory=dict)
    """Lanes with a task that nobody has taken up, and the mark of each; every mark is a new one."""
    drivers: set[tuple[Lane, int]] = field(default_factory=set)
    parked: set[Lane] = field(default_factory=set)
    held: dict[tuple[Lane, int], Hold] = field(default_factory=dict)
    """The calls on which a person is to decide."""
    decided: dict[tuple[Lane, int], int] = field(default_factory=dict)
    """The calls on which a person or a rule has decided, until they are carried out again: how much there was in the
    lane's journal then.
    """
    rules: dict[str, RunRule] = field(default_factory=dict)
    """The rules in force."""
    rules_last: str = ""
    """The entry that has changed the rules last."""
    history: list[tuple[Any, ...]] = field(default_factory=list)
    """What became of rules and of calls on which others would decide, in order."""
    _marks: int = 0

    @property
    def is_finished(self) -> bool:
        """Whether every call has ended."""
        return len(self.ends) == self.size

    def commit(self, commit: Commit) -> Committed:
        """Take one step of a lane."""
        lane, driver = commit.lane, (commit.lane, commit.owner)
        journal = self.journals[lane]
        is_current = len(journal) == commit.seen
        is_outdated = commit.seen < self.retried.get(lane, 0)
        accepted = list[bool]()
        for entry in commit.entries:
            rests_on_others = entry.attempt == DECIDED and not all(accepted)
            may_come = not rests_on_others and self._may_come(commit, entry, is_current, is_outdated)
            accepted.append(may_come and self._append(lane, entry))
        woken = self._wake() if lane is None and self._brings_what_is_awaited(commit.entries, accepted) else ()
        doubtful = tuple(index in commit.begins and self._is_doubtful(lane, index) for index in commit.claims)
        claimed = tuple(
            not (is_outdated or is_in_doubt) and self._claim(commit, index)
            for index, is_in_doubt in zip(commit.claims, doubtful, strict=True)
        )
        asked = [not is_outdated and all(accepted) and self._ask(commit, hold) for hold in commit.asks]
        is_ruled_anew = any(hold.rules not in (None, self.rules_last) for hold in commit.asks)
        nothing_new = is_current and not is_ruled_anew
        nothing_new = nothing_new and (lane is None or len(self.journals[None]) == commit.global_seen)
        if commit.park and nothing_new:
            self.parked.add(lane)
        if commit.clears_mark is not None and self.published.get(lane) == commit.clears_mark:
            del self.published[lane]
        if commit.leaves and nothing_new:
            self.drivers.discard(driver)
        elif not self.is_finished:
            self.drivers.add(driver)
        return Committed(
            len(journal), len(self.journals[None]), is_current, all(accepted), claimed, doubtful, all(asked), woken
        )

    def lose_call(self, lane: Lane, index: int) -> None:
        """The sweep finds a call's lease run out: it may be claimed anew, and its lane is published again."""
        del self.holders[lane, index]
        self._mark(lane)

    def lose_driver(self, lane: Lane, owner: int) -> None:
        """The sweep finds a driver's lease run out."""
        self.drivers.discard((lane, owner))
        self._mark(lane)

    def settle(self, lane: Lane, index: int, ruling: Ruling) -> None:
        """A person says what became of a call."""
        self.unknown.remove((lane, index))
        self.journals[lane].append(Noted(CallDecided(index, ruling)))
        self.settled[lane, index] = len(self.journals[lane])
        self._mark(lane)

    def decide(self, lane: Lane, index: int, ruling: Ruling, rule: RunRule | None) -> None:
        """A person decides on a call, and may give a rule with that."""
        del self.held[lane, index]
        self.journals[lane].append(Noted(CallDecided(index, ruling)))
        self.decided[lane, index] = len(self.journals[lane])
        self.history.append(("decided", lane, index, ruling.verdict))
        if rule is not None:
            self._change_rules(RuleGiven(rule))
            self.rules[self.rules_last] = rule
            self.history.append(("given", self.rules_last, rule))
        self._mark(lane)

    def revoke(self, rule: str) -> None:
        """A person revokes a rule."""
        del self.rules[rule]
        self._change_rules(RuleRevoked(rule))
        self.history.append(("revoked", rule))

    def _change_rules(self, event: RuleGiven | RuleRevoked) -> None:
        self.rules_last = f"{len(self.journals[None])}-0"
        self.journals[None].append(Noted(event))

    def undo(self, lane: Lane, calls: Collection[int], stale: Collection[int]) -> None:
        """Have calls that have ended carried out again; the lane is published again."""
        for index in calls:
            del self.ends[lane, index]
            self.decided.pop((lane, index), None)
        self.journals[lane].append(Undone(CallsUndone(tuple(calls), stale=tuple(stale))))
        self.retried[lane] = len(self.journals[lane])
        self.history.append(("undone", lane, tuple(calls)))
        self._mark(lane)

    def standing(self) -> dict[tuple[Lane, int], Entry]:
        """The ends of calls that count."""
        return {
            (lane, entry.outcome.index): entry for lane, journal in self.journals.items() for entry in standing(journal)
        }

    def _may_come(self, commit: Commit, entry: Entry, is_current: bool, is_outdated: bool) -> bool:
        """What was decided rests on what the lane is now; of what was begun, a driver that does not know what was
        undone knows what it has begun itself, and what had begun before.
        """
        call = commit.lane, entry.outcome.index
        if (since := self.begun.get(call)) is None:
            return is_current
        is_older = call in self.holders and since < self.retried.get(commit.lane, 0)
        return not is_outdated or self.holders.get(call) == commit.owner or is_older

    def _append(self, lane: Lane, entry: Entry) -> bool:
        call = lane, entry.outcome.index
        if call in self.ends:
            return False
        self.journals[lane].append(entry)
        self.ends[call] = entry.outcome.status
        self.holders.pop(call, None)
        self.begun.pop(call, None)
        self.unknown.discard(call)
        self.settled.pop(call, None)
        return True

    def _brings_what_is_awaited(self, entries: Sequence[Entry], accepted: Sequence[bool]) -> bool:
        return any(
            is_new and entry.outcome.index in self.awaited for entry, is_new in zip(entries, accepted, strict=True)
        )

    def _wake(self) -> tuple[Lane, ...]:
        woken = tuple(sorted(self.parked, key=str))
        for lane in woken:
            self._mark(lane)
        self.parked.clear()
        return woken

    def _mark(self, lane: Lane) -> None:
        self._marks += 1
        self.published[lane] = self._marks

    def _claim(self, commit: Commit, index: int) -> bool:
        lane, owner = commit.lane, commit.owner
        call = lane, index
        is_ours = call not in self.ends and self.holders.get(call, owner) == owner and not self.is_finished
        is_ours = is_ours and call not in self.held
        is_ours = is_ours and commit.seen >= max(self.settled.get(call, 0), self.decided.get(call, 0))
        if is_ours and self.holders.get(call) != owner:
            self.holders[call], self.begun[call] = owner, len(self.journals[lane])
            self.settled.pop(call, None)
            if (event := commit.begins.get(index)) is not None:
                self.journals[lane].append(Noted(event))
        return is_ours

    def _is_doubtful(self, lane: Lane, index: int) -> bool:
        """Whether a call has begun, and nobody is at work on it, or has said what became of it."""
        call = lane, index
        return call in self.begun and call not in self.holders and call not in self.settled

    def _ask(self, commit: Commit, hold: Hold) -> bool:
        lane, call = commit.lane, (commit.lane, hold.call.index)
        if hold.evidence is None:
            return commit.seen >= self.decided.get(call, 0) and self._hold(lane, hold)
        if is_news := self._is_doubtful(*call) and call not in self.unknown:
            self.unknown.add(call)
            self.journals[lane].append(Noted(hold.event))
        return is_news

    def _hold(self, lane: Lane, hold: Hold) -> bool:
        """Hold a call, unless the rules have changed since it was decided; a rule decides on it at once."""
        call = lane, hold.call.index
        is_lost = call in self.begun and call not in self.holders  # others may have written more to what it reads since
        is_free = is_lost or not any(call in known for known in (self.begun, self.decided))
        is_free = is_free and call not in self.ends and call not in self.held
        if not (is_free and hold.rules == self.rules_last):
            return False
        self.journals[lane].append(Noted(hold.event))
        self.begun.pop(call, None)
        self.history.append(("ruled" if hold.rule else "asked", lane, hold))
        if hold.rule:
            self.decided[call] = len(self.journals[lane])
        else:
            self.held[call] = hold
        return True


def standing(journal: Iterable[Entry | Undone | Noted]) -> list[Entry]:
    """The ends in a lane's journal that count after the last of its entries."""
    return [entry for entry in effective(journal) if isinstance(entry, Entry)]


def effective(journal: Iterable[Entry | Undone | Noted]) -> list[Entry | Undone | Noted]:
    """What counts in a lane's journal after the last of its entries."""
    entries = list(journal)
    counts = effective_events([entry.event for entry in entries])
    return [entry for entry, is_one in zip(entries, counts, strict=True) if is_one]
