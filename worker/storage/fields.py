"""The fields of an entry of a run's log: the one place that names them. The scripts in `lua/` write the same.

| field | says |
|---|---|
| `l` | the lane it belongs to; without it, it is of the run as a whole |
| `p` | the id of the lane's entry before it, so that a lane is read from its end (lua/lane.lua) |
| `c` | the call it is about |
| `m` | a message (msgpack): submitted, sent, or written by the call |
| `s` | the call has ended, and how |
| `d` | details of that (msgpack): `error`, `reason`, `cost`, `missed`, `value`, `rescued`, `by`, `t` (see `spent`) |
| `W` | who has carried it out, with which version of the code: a number (see `codes`) |
| `k` | the lane's record, in its first entry and wherever it was amended (see `definition`) |
| `element` | an element of the call has ended: its number and how, `<n>:<status>` |
| `held` | the call waits for a person, with this (msgpack, see `held_calls`) |
| `decided` | what was decided of it (msgpack) |
| `fan_out` | the call is carried out for each element, with this (msgpack, as `held`) |
| `child` | the run that is to answer the call |
| `given_back` | the call waits for code that admits it: what the first that does not had against it |
| `undone` | calls (msgpack) that are carried out again: their ends, and what they wrote, before it count no more |
| `keeping` | beside it: those of them (msgpack) of which only the elements that failed are carried out again |
| `stale` | beside it: calls (msgpack) that have read what those may now write, and are not carried out again |
| `gave_up` | what was promised and has not come is not waited for any more |
| `amendment` | beside the global lane's record: what the lanes share of an amendment |
| `audit` | who did it, where that was done from outside (msgpack, see `audit`); an entry may hold nothing else |
| `status` | without a lane: the run's new status; `d` may give a `reason` (`s` in the stream of statuses) |

What every instance has is one letter, since it is in memory as often. A loop is a lane of its own: its entries have
`tick`, and one field for each event (see `loop_entries`). Readers pass over fields that they do not know.

In `d`, `seen` are two ids: a delegate, or a model, was sent what its lane had up to the first, and the global one up to
the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LANE: Final = b"l"
BEFORE: Final = b"p"
CALL: Final = b"c"
MESSAGE: Final = b"m"
ENDED: Final = b"s"
DETAIL: Final = b"d"
CODE: Final = b"W"
RECORD: Final = b"k"
ELEMENT: Final = b"element"
HELD: Final = b"held"
DECIDED: Final = b"decided"
FAN_OUT: Final = b"fan_out"
CHILD: Final = b"child"
GIVEN_BACK: Final = b"given_back"
UNDONE: Final = b"undone"
KEEPING: Final = b"keeping"
STALE: Final = b"stale"
GAVE_UP: Final = b"gave_up"
AMENDMENT: Final = b"amendment"
AUDIT: Final = b"audit"
STATUS: Final = b"status"
TICK: Final = b"tick"

Fields = Mapping[bytes, bytes]
