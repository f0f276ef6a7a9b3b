"""Texts: strings and keys of calls that mean nothing as they stand and were meant to (SPEC R2.2, R2.4, R2.5, R4.1).

One walk over every string and key of the calls, along the literal tables below.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from acts_celery.protocol.calls.call import META_PROPERTIES, Call, place_in
from acts_celery.protocol.graph.readers import Readers
from acts_celery.protocol.language.errors import pointer, segments
from acts_celery.protocol.language.messages import DATA_TYPES
from acts_celery.protocol.language.paths import MISSING, strings
from acts_celery.protocol.language.references import DAGGER, Reference, expression_in
from acts_celery.protocol.language.spelling import Speller, squeezed
from acts_celery.protocol.slips.known_places import KnownPlaces
from acts_celery.protocol.slips.slip import Literals, Slip, Slips, named_by, placeholder
from acts_celery.protocol.submission.layout import Layout

from .finding import Finding, on_call

_META: Final = META_PROPERTIES
_SQUEEZED: Final = {name.replace("_", "").lower(): name for name in _META}
_LIKENESS: Final = 0.8
"""Names of one's own may look like known ones: only what is nearly the same is taken for a slip."""
_UNMISTAKABLE: Final = frozenset({"_outputPath", "_outputMethod", "_reasoningForCall", "_tool"})
"""No parameter has such a name by chance, or in a call without a tool; others may."""

_LONGEST: Final = 100_000
"""Of a longer text only so much is looked at."""

_WRAPPED: Final = "parameters stand beside _tool"
_WAITING: Final = frozenset({"dependson", "waitfor"})
_INSTEAD: Final = {
    "a call waits for what it reads: read what the other call writes": (
        "after", "before", "depends", "dependson", "requires", "waitfor",
    ),
    "for a condition let another call choose between alternatives (||), and read one of them": (
        "condition", "if", "unless", "when", "else", "then", "otherwise", "next",
    ),
    _WRAPPED: ("args", "arguments", "inputs", "parameters", "params"),
    "a plan message runs once for each instance": ("each", "foreach", "loop", "map"),
    "an exception goes to the last alternative of _outputPath": ("catch", "onerror", "onfailure", "fallback"),
    "retries and timeouts are set where the activity is registered: @activity(retries=3)": (
        "maxretries", "retries", "retry", "timeout", "timeoutseconds",
    ),
}  # fmt: skip
"""What to do instead, by the words that other systems have for it."""
_WORDS: Final = {word: remedy for remedy, words in _INSTEAD.items() for word in words}


def text_findings(layout: Layout, places: KnownPlaces) -> Iterator[Finding]:
    """Everything that follows from what stands in the calls."""
    texts = _Texts(layout, places, Speller(likeness=_LIKENESS), Readers(layout.calls))
    yield from texts.output()
    for call in layout.calls:
        yield from texts.keys(call)
        yield from texts.output_path(call)
        yield from texts.alternatives(call)
        if not call.is_note and call.given is MISSING:  # else its parameters go to no code
            yield from texts.parameters(call)


def slips_of(layout: Layout) -> Iterator[Finding]:
    """What of this explains an error: misspelt properties and paths, and texts that were meant to be references."""
    # That a place is read as it is written says nothing where another call does not find what it reads.
    texts = _Texts(layout, KnownPlaces(layout), Speller(likeness=_LIKENESS), Readers(()))
    for call in layout.calls:
        yield from texts.keys(call)
        yield from texts.output_path(call)
        yield from texts.parameters(call)


@dataclass(frozen=True)
class _Texts:
    """Reads the calls of one submission."""

    layout: Layout
    places: KnownPlaces
    speller: Speller
    readers: Readers

    def keys(self, call: Call) -> Iterator[Finding]:
        """Properties that no tool knows and that are nearly one of the protocol's, or another system's."""
        tool = self.layout.tools.get(call.tool)
        properties = tool.document["properties"] if tool is not None else ()
        listed = [name for name in properties if not name.startswith("_")]
        left_out = [name for name in listed if name not in call.raw]
        for key in call.raw:
            if key in _META or (tool is not None and tool.mentions(key)):
                continue
            is_meta, plain = key.startswith("_"), squeezed(key)
            meant = _SQUEEZED.get(plain) or (self.speller.nearest(key, _META) if is_meta else None)
            remedy, why = _WORDS.get(plain), f"has the property {key!r}, which has no effect"
            is_foreign = _is_object(call.raw[key]) if remedy == _WRAPPED else plain in _WAITING
            # Without its _ it may be a parameter, unless the tool lists others or its name is unmistakable.
            # A call without a tool has been given an empty one, so that what else is wrong with it can be found.
            is_there = meant in call.raw and (meant != "_tool" or call.tool != "")
            if meant and (is_meta or (not is_there and (meant in _UNMISTAKABLE or listed))):
                remedy = f"leave it out: {meant} is there" if is_there else f"write {meant}"
                yield on_call(self.layout, "ACT303", call, why, remedy, key)
            elif remedy and (is_meta or (listed and is_foreign)):
                yield on_call(self.layout, "ACT304", call, why, remedy, key)
            elif not is_meta and (near := self.speller.nearest(key, left_out)):
                why = f"has {key!r}, which its tool does not name"
                yield on_call(self.layout, "ACT310", call, why, f"write {near}", key)

    def parameters(self, call: Call) -> Iterator[Finding]:
        """Parameters that read as a reference does elsewhere, and are texts here."""
        for at, slip in self._slips(call, call.parameters):
            yield on_call(self.layout, slip.code, call, slip.why, slip.remedy, *at)

    def output(self) -> Iterator[Finding]:
        """The same of the solution's output (SPEC R4.9)."""
        for at, slip in self._slips(None, self.layout.submission.output):
            yield Finding(slip.code, f"the output {slip.why}", (), pointer("solution", "output", *at), slip.remedy)

    def _slips(self, call: Call | None, value: Any) -> Iterator[tuple[tuple[str | int, ...], Slip]]:
        tool = self.layout.tools.get(call.tool) if call is not None else None
        literals = Literals(tool.document if tool is not None else None)
        slips = Slips(self.places, lambda place: self._is_shown(call, place))
        count = call.index - self.layout.submission.first if call is not None else 0
        for at, text in strings(value):
            slip = slips.of(text[:_LONGEST]) or placeholder(text, count, lambda at: self.layout.calls[at].written)
            if slip is not None and not literals.has(at, text):
                yield at, slip

    def output_path(self, call: Call) -> Iterator[Finding]:
        """An output path without a dagger that begins with a kind: it lies inside the state (SPEC R2.5)."""
        parts = re.split(r"\|\||&&", str(call.properties.get("_outputPath", "")))
        if len(parts) != len(call.written):
            return  # an operator inside a quoted key
        for part, written in zip(map(str.strip, parts), call.written, strict=True):
            name = named_by(part) or part
            meant = expression_in(DAGGER + name.lstrip("./").replace("/", "."))
            place = meant.references[0] if meant is not None else None
            if place is not None and not part.startswith(DAGGER) and self._is_meant(call, written, place):
                why = f"writes to {written}, since a path without † is one inside state"
                yield on_call(self.layout, "ACT307", call, why, f"write {place}", *place_in(call.raw, "_outputPath"))

    def _is_meant(self, call: Call, written: Reference, place: Reference) -> bool:
        """Whether a path was meant to begin with a kind: it is read there, or the state has nothing of that name."""
        is_common = place.kind in DATA_TYPES
        if not (place.path or place.kind == "state") or not (is_common or place.kind in self.places.kinds()):
            return False
        is_missed = bool(place.path) and self.readers.has(place, but=call.index) and place.kind != "state"
        is_unread = not self.readers.has(written, but=call.index)
        if self.places.is_held(Reference("state", written.path[:1])):
            return False
        return is_missed or is_unread if is_common else is_missed and is_unread

    def alternatives(self, call: Call) -> Iterator[Finding]:
        """Alternatives that nothing ever brings: without their kind, misspelt, or for instances only."""
        for at, expression in call.reads:
            for group in expression.alternatives if len(expression.alternatives) > 1 else ():
                for place in group:
                    if self.places.has(place):
                        continue
                    near = self.places.nearest(place)
                    is_kind = near is not None and near.path == (place.kind, *place.path)
                    why = f"reads {place}, which the context does not hold and no call writes"
                    remedy = f"write {near}" if near is not None else "leave the alternative out"
                    yield on_call(self.layout, "ACT308" if is_kind else "ACT309", call, why, remedy, *segments(at))

    def _is_shown(self, call: Call | None, place: Reference) -> bool:
        """Whether the call's scopes give it the value."""
        return call is not None and any(scope.overlaps(place) for scope in call.scopes)


def _is_object(value: Any) -> bool:
    """Whether a value is an object, or the JSON text of one."""
    return isinstance(value, dict) or (isinstance(value, str) and value.lstrip().startswith("{"))
