"""The fields of an entry of a run's log: the one place that names them. The scripts in `lua/` write the same.

| field | says |
|---|---|
| `l` | the lane it belongs to; without it, it is of the run as a whole |
| `p` | the id of the lane's entry before it, so that a lane is read from its end (lua/lane.lua) |
| `c` | the call it is about |
| `m` | a message (msgpack): submitted, sent, or written by the call |
| `s` | the call has ended, and how |
| `i` | an element of the call has ended: its number and how, `<n>:<status>` |
| `d` | details of that (msgpack): `error`, `reason`, `cost`, `missed`, `value`, `by`, `t` (see `timings`) |
| `h` | the call waits for a person, with this (msgpack, see `held_calls`) |
| `j` | what was decided of it (msgpack) |
| `f` | the call is carried out for each element, with this (msgpack, as `h`) |
| `r` | the run that is to answer the call |
| `u` | calls (msgpack) whose ends before it count no more: they are tried again |
| `g` | what was promised and has not come is not waited for any more |
| `k` | the lane's record, in its first entry and wherever it was amended (see `definition`) |
| `a` | beside the global lane's record: what the lanes share of an amendment |
| `w` | who did it, where that was done from outside (msgpack, see `audit`); an entry may hold nothing else |
| `s` | without a lane: what the run's status has changed to; `d` may give a `reason` |

A loop is a lane of its own. Its entries have `t`, the tick, `m` where they bring the message of a solution, and of
`LOOP_PARTS` one or two. Readers pass over fields that they do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LANE: Final = b"l"
BEFORE: Final = b"p"
CALL: Final = b"c"
MESSAGE: Final = b"m"
ENDED: Final = b"s"
ELEMENT: Final = b"i"
DETAIL: Final = b"d"
HELD: Final = b"h"
DECIDED: Final = b"j"
FAN_OUT: Final = b"f"
CHILD: Final = b"r"
UNDONE: Final = b"u"
GAVE_UP: Final = b"g"
RECORD: Final = b"k"
AMENDMENT: Final = b"a"
AUDIT: Final = b"w"
STATUS: Final = b"s"
TICK: Final = b"t"

LOOP_PARTS: Final[Mapping[bytes, str]] = {
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
"""What an entry of a loop's lane says, as `loop_entries.LoopEntry` names it."""
