"""What the log holds of a run's loop (SPEC R13.5), and one step of it as a script (lua/loop.lua).

A loop is a lane of its own. Its entries begin like those of any lane; the others of their fields are `t` the tick, and
of these one or two: `q` a request, `z` the tools that were chosen (SPEC R12.7), `m` the message of its solution with
`o` what the engine made of it, `x` the end of the tick, `e` the end of the loop, `v` that a loop which had ended goes
on; in lazy mode `n` the plan, `y` that it was approved, `b` that its calls begin; `f` a part of an
answer that is being written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from acts_celery.protocol.engine.loop import Loop
from acts_celery.worker.messaging.packing import pack, unpack

from .keys import Keys


def loop_keys(keys: Keys) -> tuple[str, ...]:
    """The keys of a run in the order in which the script takes them."""
    named = (keys.state, keys.log, keys.statuses, keys.lanes, keys.calls, keys.leases, keys.published, keys.gathers)
    return (*named, *(name for name in keys.all if name not in named))


LOOP: Final = "?"
"""The loop's lane. No instance of a request has this name."""


def loop_alarm() -> str:
    """The member of a run's `leases` that says when the time of its loop is over (see loop.lua)."""
    return f"{LOOP}\x1f@due"


@dataclass(frozen=True, slots=True)
class LoopEntry:
    """What an entry of a loop's lane says beside its message."""

    tick: int
    request: Mapping[str, Any] | None = None
    """`messages` added to those of the requests before, `schema` where it is another one than theirs, `config`,
    `estimate` in tokens, `digest`; of a staged tick's first `for_tools`, of its second `slots` (see `Slots`).
    """
    choice: Mapping[str, Any] | None = None
    """`answer` the first one of a staged tick, `model` and `usage`, `charged` tokens."""
    answer: Mapping[str, Any] | None = None
    """`first` the index of the call that stands first in it, `runs` how many run, `charged` tokens, `errors` of what is
    not valid.
    """
    part: Mapping[str, Any] | None = None
    """Of an answer that is being written: `text` that was added, `first`, `runs` how many run so far (SPEC R13.8)."""
    closing: Mapping[str, Any] | None = None
    """`errors` how many there were, `set_aside` why an output was not accepted, or null."""
    end: Mapping[str, Any] | None = None
    """`status`, `reason`, `output`."""
    extension: Mapping[str, Any] | None = None
    """`ticks` that were added."""
    plan: Mapping[str, Any] | None = None
    """`calls` that wait for an approval, and their `digest` (SPEC R13.7)."""
    approval: Mapping[str, Any] | None = None
    """The `digest` of the plan that was approved."""
    start: Mapping[str, Any] | None = None
    """Of an approved plan: `first`, `runs`, `errors`, as in `answer`."""


_PARTS: Final = {
    b"q": "request",
    b"z": "choice",
    b"o": "answer",
    b"x": "closing",
    b"e": "end",
    b"v": "extension",
    b"n": "plan",
    b"y": "approval",
    b"b": "start",
    b"f": "part",
}
_KEYS: Final = {name: key.decode() for key, name in _PARTS.items()}


def read_loop_entry(fields: Mapping[bytes, bytes]) -> LoopEntry | None:
    """What an entry says of the loop, if it is one of the loop's lane."""
    if b"t" not in fields:
        return None
    parts = {name: unpack(fields[key]) for key, name in _PARTS.items() if key in fields}
    return LoopEntry(int(fields[b"t"]), **parts)


def take_in(loop: Loop, said: LoopEntry, message: Mapping[str, Any] | None) -> None:
    """Let the state of a loop follow an entry of its lane; `message` is the entry's."""
    if said.request is not None:
        loop.ask(said.request["estimate"], said.request["digest"], for_tools=said.request.get("for_tools", False))
    if said.choice is not None:
        loop.choose(charged=said.choice["charged"])
    if said.part is not None:
        loop.open(first=said.part["first"], runs=said.part["runs"])
    if said.answer is not None and message is not None:
        loop.answer(message, **{key: said.answer[key] for key in ("charged", "first", "runs")})
    if said.plan is not None:
        loop.plan()
    if said.approval is not None:
        loop.approve()
    if said.start is not None:
        loop.start(first=said.start["first"], runs=said.start["runs"])
    if said.end is not None:
        loop.end(said.closing["errors"] if said.closing is not None else None)
    elif said.closing is not None:
        loop.close(said.closing["errors"])
    if said.extension is not None:
        loop.extend(said.extension["ticks"])


@dataclass(slots=True)
class LoopStep:
    """What a loop has decided, to be written in one step."""

    before: str
    """The stage and tick by which it was decided."""
    after: str
    seen: str
    """The last id of the log by which it was decided."""
    entries: list[tuple[str, list[str | bytes]]] = field(default_factory=list)
    """By lane, in order."""
    woken: Sequence[str] = ()
    added: int = 0
    gathers: Sequence[tuple[str, int]] = ()
    answered: int | None = None
    """The index of a request that has ended."""
    ends: str | None = None
    fault: str = ""
    is_alone: bool = False
    """Whether it counts only where every call has ended."""
    pauses: bool = False
    """Whether the run is paused with it."""
    extends: int | None = None
    """The index of the request with which a loop that had ended goes on."""
    spent: int | None = None
    """The tokens that the loop has taken itself, with this step."""
    alarm_ms: int | None = None
    """When the loop is to be looked at again, though nothing comes."""

    def note(self, tick: int, *, message: Mapping[str, Any] | None = None, **parts: Mapping[str, Any]) -> None:
        """Add an entry of the loop's own; `parts` are those of `LoopEntry`."""
        fields: list[str | bytes] = ["t", str(tick)]
        if message is not None:
            fields += ["m", pack(message)]
        for name, part in parts.items():
            fields += [_KEYS[name], pack(part)]
        self.entries.append((LOOP, fields))

    def append(self, lane: str, message: Mapping[str, Any]) -> None:
        """Add a message to a lane."""
        self.entries.append((lane, ["m", pack(message)]))

    def to_request(self, published_ms: int, most_bytes: int, *, refuses: bool = False) -> dict[str, Any]:
        """As the script takes it; `refuses` a step by which the run would have written more than it may."""
        return {
            "lane": LOOP,
            "from": self.before,
            "to": self.after,
            "seen": self.seen,
            "entries": [[lane, fields] for lane, fields in self.entries],
            "woken": list(self.woken),
            "added": self.added,
            "gathers": [list(pair) for pair in self.gathers],
            "answered": None if self.answered is None else str(self.answered),
            "ends": self.ends,
            "fault": self.fault,
            "extends": None if self.extends is None else str(self.extends),
            "alone": self.is_alone,
            "pauses": self.pauses,
            "alarm": self.alarm_ms,
            "spent": None if self.spent is None else str(self.spent),
            "published_ms": published_ms,
            "most_bytes": most_bytes,
            "refuses": refuses,
        }
