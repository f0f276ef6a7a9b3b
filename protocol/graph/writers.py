"""Writers: who writes at a place, by its output paths (SPEC R6.1). The counterpart of `readers`.

No call has an output path in `error`, and any call may fail: who reads there waits for the calls of its instance that
are listed before it, and for no other (SPEC R3.1).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.language.messages import ERROR
from acts_celery.protocol.language.references import Reference


@dataclass(frozen=True, eq=False, slots=True)
class Line:
    """The calls that write at one place (or at or below it), in the order listed."""

    calls: list[int] = field(default_factory=list)

    def add(self, index: int) -> None:
        """Append a call; it may come several times in a row."""
        if not self.calls or self.calls[-1] != index:
            self.calls.append(index)


class Writers:
    """Who writes where: an index over the output paths of the calls a lane can see.

    `shared` is the index of other calls, seen as well. `failing` are the calls that may bring an error into the
    instance of who reads.
    """

    def __init__(self, calls: Iterable[Call], shared: Writers | None = None, *, failing: Iterable[Call] = ()) -> None:
        self._shared = shared
        self._failing = Line(sorted({call.index for call in failing if not call.is_note}))
        self._at: dict[tuple[str, ...], Line] = defaultdict(Line)
        self._at_or_below: dict[tuple[str, ...], Line] = defaultdict(Line)
        for call in sorted(calls, key=lambda call: call.index):
            for place in {reference.key for reference in call.output.references} if call.output else ():
                self._at[place].add(call.index)
                for length in range(1, len(place) + 1):
                    self._at_or_below[place[:length]].add(call.index)

    def lines(self, place: Reference) -> Iterator[Line]:
        """The calls that write at or below a place, then those that write above it (SPEC R6.1)."""
        key = place.key
        if place.kind == ERROR and self._failing.calls:
            yield self._failing
        if key in self._at_or_below:
            yield self._at_or_below[key]
        for length in range(1, len(key)):
            if key[:length] in self._at:
                yield self._at[key[:length]]
        if self._shared is not None:
            yield from self._shared.lines(place)

    def has_inside(self, place: Reference) -> bool:
        """Whether a call writes there, at or below it."""
        return place.key in self._at_or_below or (self._shared is not None and self._shared.has_inside(place))

    def has_earlier(self, place: Reference, *, than: int) -> bool:
        """Whether a call listed before writes there."""
        return any(line.calls[0] < than for line in self.lines(place))

    def has_other(self, place: Reference, *, than: int) -> bool:
        """Whether another call writes there that a reader may wait for."""
        if place.kind == ERROR:
            return self.has_earlier(place, than=than)
        return any(len(line.calls) > 1 or line.calls[0] != than for line in self.lines(place))
