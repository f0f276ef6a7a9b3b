"""Limits: how large a submission may be (SPEC R7.1), and the walk that holds a value against them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isfinite
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final, TypeVar

import msgpack

from .errors import Problem, Rejected, pointer

Container = TypeVar("Container")

_BYTES_PER_CONTAINER: Final = 8
_AROUND: Final = 4
"""Levels of a document around the messages, calls and schemas whose depth is limited."""
_LOWEST: Final = -(2**63)
_ABOVE: Final = 2**64

MOST: Final = 10**9
"""Largest number of calls, tokens or seconds: what is calculated with it has to fit the log, too."""
LONGEST_INSTANCE: Final = 200
"""Characters of an instance's name: it is repeated in the id of each of its calls."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds for a submission and its run; each is named in the error that it causes."""

    depth: int = 64
    """Objects and lists inside each other, in one message, call or schema."""
    message_bytes: int = 1024 * 1024
    """One message, as msgpack."""
    calls: int = 1_000_000
    """Calls executed by one run: those of the solution, or the plan's times the instances."""
    solution_calls: int = 1_000_000
    """Calls listed in one solution or plan."""
    submission_bytes: int = 16 * 1024 * 1024
    """A whole submission, as msgpack."""
    call_bytes: int = 16 * 1024 * 1024
    """The most bytes of msgpack that one call is given as parameters and scopes."""
    containers: int = 250_000
    """Objects and lists in one message, in one result, or in what one call is given: each takes some hundred bytes of
    memory, and as little as one byte on its way.
    """
    elements: int = 10_000
    """Elements of one call with `_each`."""
    messages: int = 1_000_000
    """Messages in one context."""
    instances: int = 100_000
    """Instances in one context."""
    schema_work: int = 500_000_000
    """Units of work that the schemas of one submission may take: to be read, and to be applied to its calls. One is
    about ten nanoseconds.
    """

    @property
    def containers_in_all(self) -> int:
        """Objects and lists in a whole submission: one for each few bytes that it may have."""
        return max(self.containers, self.submission_bytes // _BYTES_PER_CONTAINER)

    @property
    def for_all(self) -> Limits:
        """The limits for what belongs to a submission as a whole."""
        return _for_all(self)


@lru_cache(maxsize=8)
def _for_all(limits: Limits) -> Limits:
    return replace(limits, containers=limits.containers_in_all)


def exceeded(what: str, limits: Limits, name: str) -> str:
    """The text for a limit that is exceeded; `name` is its field in `Limits`."""
    return f"{what}, where {getattr(limits, name)} are allowed (ACTS_LIMIT_{name.upper()})"


def plain(value: Any, limits: Limits) -> Any:
    """Return the value with exact types only: an instance of a subclass of `dict`, `list`, `str`, `int` or `float`,
    such as an `IntEnum`, becomes the plain value that it holds, and none of its own methods is called.

    A value that is plain already is returned as it is. What is no JSON value stays where it is: `value_problems`
    refuses it there. Raises `Rejected` for more values than any submission has.
    """
    return value if _is_plain(value, limits) else _plain_copy(value, limits.depth + _AROUND, _Budget(limits))


def plain_scalar(value: Any) -> Any:
    """Return a string or a number as an exact `str`, `int` or `float`, and anything else as it is."""
    kind = type(value)
    if kind is str or kind is int or kind is float or kind is bool:
        return value
    if issubclass(kind, int):
        return int.__int__(value)
    if issubclass(kind, str):
        return str.__str__(value)
    return float.__float__(value) if issubclass(kind, float) else value


class _Budget:
    """Counts down the values that may still be visited."""

    def __init__(self, limits: Limits) -> None:
        self._most = self._left = limits.submission_bytes + limits.containers_in_all

    def take(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            text = f"more than {self._most} values: too large (ACTS_LIMIT_SUBMISSION_BYTES)"
            raise Rejected([Problem("", text)])


def _is_plain(value: Any, limits: Limits) -> bool:
    """Whether `plain` has nothing to change. The walk goes level by level, no deeper than `value_problems`."""
    budget, level = _Budget(limits), [value]
    for _ in range(limits.depth + _AROUND):
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str or kind is int or item is None or kind is bool or kind is float:
                continue
            if kind is dict:
                budget.take(len(item))
                if any(type(key) is not str for key in item):
                    return False
                below.extend(item.values())
            elif kind is list:
                budget.take(len(item))
                below.extend(item)
            elif issubclass(kind, _BASES):
                return False
        if not below:
            break
        level = below
    return True


_BASES: Final = (dict, list, str, int, float)


def _plain_copy(value: Any, depth: int, budget: _Budget) -> Any:
    """The value with exact types, down to `depth` levels."""
    kind = type(value)
    if depth == 0 or not issubclass(kind, (dict, list)):
        return plain_scalar(value)
    if issubclass(kind, list):
        budget.take(list.__len__(value))
        return [_plain_copy(item, depth - 1, budget) for item in list.__iter__(value)]
    budget.take(dict.__len__(value))
    if not all(issubclass(type(key), str) for key in dict.__iter__(value)):
        return value  # it is refused, and its keys are not asked for their hashes
    return {plain_scalar(key): _plain_copy(item, depth - 1, budget) for key, item in dict.items(value)}


def value_problems(value: Any, limits: Limits, *at: str | int) -> Iterator[Problem]:
    """Problems of a value that cannot be sent: too deep, too many parts, not JSON, beyond what msgpack can hold.

    Subclasses of the plain types are refused, too: nothing of a value's own code is called (see `plain`). The walk
    needs no recursion, so the depth of a hostile value does not matter.
    """
    stack: list[tuple[Any, tuple[str | int, ...], int]] = [(value, at, 1)]
    containers = 0
    while stack:
        item, place, depth = stack.pop()
        kind = type(item)
        if kind is dict or kind is list:
            containers += 1
            if containers > limits.containers:
                yield Problem(pointer(*at), too_many_containers(limits))
                return
            if depth > limits.depth:
                yield Problem(pointer(*at), f"nested deeper than {limits.depth} levels (ACTS_LIMIT_DEPTH)")
                return
            pairs: Any = item.items() if kind is dict else enumerate(item)
            for key, below in pairs:
                if kind is dict and (type(key) is not str or not _is_unicode(key)):
                    yield Problem(pointer(*place), "keys must be strings of valid Unicode")
                elif type(below) is dict or type(below) is list:
                    stack.append((below, (*place, key), depth + 1))
                elif (problem := scalar_problem(below)) is not None:
                    yield Problem(pointer(*place, key), problem)
        elif (problem := scalar_problem(item)) is not None:
            yield Problem(pointer(*place), problem)


def one_message_problems(value: Any, limits: Limits, *at: str | int) -> Iterator[Problem]:
    """Problems of a value that cannot be sent in one message: those of `value_problems`, else its size."""
    problems = list(value_problems(value, limits, *at))
    yield from problems
    if not problems and (size := size_of(value)) > limits.message_bytes:
        yield Problem(pointer(*at), exceeded(f"{size} bytes", limits, "message_bytes"))


def too_many_containers(limits: Limits) -> str:
    """Error text for a value with too many objects and lists."""
    return f"more than {limits.containers} objects and lists (ACTS_LIMIT_CONTAINERS)"


def size_of(value: Any) -> int:
    """Size in bytes of a value without `value_problems`, as msgpack."""
    return len(msgpack.packb(value))


class Containers:
    """Counts objects and lists, most of them while a decoder makes them; raises `TooManyContainers`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._left = most

    def made(self, container: Container) -> Container:
        """Count a container, and return it."""
        self._left -= 1
        if self._left < 0:
            raise TooManyContainers(f"more than {self._most} objects and lists")
        return container

    def count_in(self, data: bytes) -> None:
        """Count the containers in msgpack that this process has written."""
        forget = self._forgotten
        msgpack.unpackb(data, list_hook=forget, object_hook=forget, unicode_errors="surrogatepass")

    def _forgotten(self, container: object) -> None:
        self.made(container)


class TooManyContainers(ValueError):
    """A value has more objects and lists than it may have."""


def unpacked(data: bytes, most_containers: int) -> Any:
    """Decode msgpack from outside. Containers are counted as they are made, so those over the limit never take memory.
    Raises `TooManyContainers`, and what msgpack raises.
    """
    if len(data) <= most_containers:  # each takes a byte at least
        return msgpack.unpackb(data, strict_map_key=False)
    made = Containers(most_containers).made
    return msgpack.unpackb(data, strict_map_key=False, list_hook=made, object_hook=made)


def scalar_problem(value: Any) -> str | None:
    """Problem of a value that is no object and no list and cannot be sent."""
    kind = type(value)
    if kind is str:
        return None if _is_unicode(value) else "is not valid Unicode (a lone surrogate)"
    if value is None or kind is bool:
        return None
    if kind is int:
        return None if _LOWEST <= value < _ABOVE else "is beyond 64 bits: write it as a string"
    if kind is float:
        return None if isfinite(value) else "is not a finite number: write null (None)"
    return f"is not a JSON value ({kind.__name__}){_remedy(kind)}"


def _remedy(kind: type) -> str:
    """Advice for a function, or for a value of a library of numbers and tables."""
    if kind in (FunctionType, BuiltinFunctionType, MethodType):
        return ": write the name of the tool, as a text, or call the function in a Draft"
    library = str(kind.__module__).partition(".")[0]
    if library not in ("numpy", "pandas", "polars"):
        return ""
    if "DataFrame" in kind.__name__:
        return ": write frame.to_dicts()" if library == "polars" else ': write frame.to_dict("records")'
    if kind.__name__ in ("NAType", "NaTType"):
        return ": write null (None)"
    return ": write value.to_list()" if library == "polars" else ": write value.tolist()"


def _is_unicode(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


CONTROL: Final = "a name has no control characters"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def has_control_characters(name: str) -> bool:
    """Whether a name holds characters that a terminal would take for a command; names are shown as they are."""
    return _CONTROL.search(name) is not None


# facade
MOST_OF_A_CODE: Final = 100
"""Findings reported of one code; the last of them says how many more there are."""

# analysis/deployment
DEPLOYMENT_BUDGET: Final = 5_000_000
"""Units that the analysis of one run may take (see `Algebra`)."""

# analysis/findings
MOST_NAMED: Final = 3
MOST_ARROWS: Final = 100_000
"""Arrows of a drawing: one with more shows nothing, and where many wait for many there may be millions."""

# analysis/order
MOST_PASSES: Final = 64
"""Cases of one view in which it is determined who waits for whom."""
ORDER_MOST_STEPS: Final = 1_000_000
"""Calls that are visited for that in one view."""
MOST_HELD_AGAINST: Final = 4
"""Writes of each kind before a write that it is compared with."""
MOST_ABOVE: Final = 20
"""Writers above a place that are compared with those at it."""
MOST_LOOKED_AT: Final = 100
"""The most earlier writes that are compared with a write to find races."""
ORDER_MOST_LISTED: Final = 10
ORDER_MOST_KINDS: Final = 32
"""Kinds of readers of a value; with more, no order finding is made for it."""
MOST_WAYS: Final = 64
ORDER_MOST_CALLS: Final = 50_000
"""The most calls that are examined, over all views."""
MOST_PROVED: Final = 20
"""Calls that run in none of the tried cases and are proved one by one."""

# analysis/sample_values
SAMPLE_VALUES_DEPTH: Final = 12
MOST_ITEMS: Final = 8
SAMPLE_VALUES_MOST_REQUIRED: Final = 256
MOST_LETTERS: Final = 10_000
MOST_PARTS: Final = 2_000
MOST_COMBINED: Final = 64
MOST_READS: Final = 64
"""Parameters reading one result whose schemas are asked what they take."""

# analysis/simulation
SIMULATION_MOST_CALLS: Final = 5_000
"""Calls run in one simulation, unless those that are global, or of the first instance, are more."""
MOST_ALTERNATIVES: Final = 64
SIMULATION_MOST_TRIED: Final = 10_000
"""Calls run in one `branch_effects` over all alternatives."""
MESSAGES_PER_CALL: Final = 5
"""Messages that are read in the time of one call."""

# analysis/lint_rules
MOST_SCOPES: Final = 50
"""The most wide scopes that are examined, each by a walk along all that its call waits for; the same number of gather
calls.
"""
LIKENESS: Final = 0.7
MOST_DELEGATES: Final = 200
"""Calls of delegates that are checked against the input that these declare."""
TEXT_LIKENESS: Final = 0.8
"""Likeness from which a text counts as a misspelt name: names that users choose may look like known ones."""
LINT_LONGEST: Final = 100_000
"""The most characters of a text that are examined."""

# analysis/type_flow
MOST_WRITERS: Final = 8
"""Calls that may write at a place whose type is inferred."""
TYPE_FLOW_MOST_NAMES: Final = 12
MOST_KNOWN: Final = 200

# analysis/values
MOST_ELEMENTS: Final = 20
"""The most elements of a list that are examined."""

# analysis/visibility
MOST_INSTANCES: Final = 100
"""Instances that are searched for a place that was meant."""

# analysis/order_cases
MOST_RIVALS: Final = 8
"""Writers of one place that a call which does not wait for them is compared with."""
MOST_ORDER_CASES: Final = 1_024

# calls/built_in
LONGEST_WAIT_SECONDS: Final = 10 * 366 * 86_400
"""The furthest moment until which a call may wait: a mistake in a year is noticed."""

DAYS_UNTIL_1970: Final = 719_162
"""Days from the first day of the year 1 to the first day of 1970."""

# calls/call
CALL_SPAN: Final = 10_000_000
"""Distance between the numbers of elements of two calls: more than a run has calls, or a call elements. Its square has
no more digits than a script's numbers keep, 14.
"""

# calls/pins
PINS_FILLED_IN: Final = 1_000
"""Places of one tool's calls in which expressions are filled in."""

# calls/tools
TOOLS_CHEAP: Final = 100
"""Looks at each part of a call: schemas that take no more cost less than reading the call."""

# calls/trust: hosts
LONGEST_ADDRESS: Final = 4_096
LONGEST_HOST: Final = 253
MOST_HOSTS: Final = 64
"""Hosts that one declaration names for a parameter."""
HOSTS_READ: Final = 200_000
"""Characters of texts in which hosts are looked for."""

# calls/trust
FEW_VALUES: Final = 16

# run_rules
MOST_RULES: Final = 100
"""Rules of a run in force."""
SHORTEST_WORDS: Final = 3
"""Characters of a text that can stand in the user's own words."""

# engine/costs
MOST_NANODOLLARS: Final = 2**53 - 1

# what a submission may ask for, beside the document
MOST_URGENT: Final = 9
"""The highest priority of a run. 0 is the lowest, and the default."""

# engine/events
PROGRESS_BYTES: Final = 16_384
"""Bytes of one report of a call's progress, its details included."""
PROGRESS_TEXT: Final = 200
"""Characters of the text of a report of progress; what is longer is cut."""
PROGRESS_SHARE: Final = 50
"""The part of the time since the first report of an attempt that passes between two of them, beside the least time: an
hour makes some 300 entries.
"""

# engine/loop
LOOP_REPEATS: Final = 3
"""Consecutive ticks with the same calls and results that end a loop: it makes no progress."""
MAX_OUTPUT_TOKENS: Final = 4_096
"""Output tokens of a request whose `config` sets none: the limit is always sent (SPEC R13.3)."""
QUOTES_LEAST_CHARACTERS: Final = 200
"""Characters from which on a text that the log holds is named in a request instead of written once more."""
QUOTES_MOST: Final = 64
"""Parts of the log that one request names."""

# engine/outcomes
OUTCOMES_NAMED: Final = 10
"""Failed elements that a call's reason names."""

# hints
HINTS_LIKENESS: Final = 0.4
MOST_READ: Final = 4
"""The most places of an expression, or of a tool's list, that are examined."""
HINTS_MOST_CALLS: Final = 200
"""The most calls, from the first on, that are examined for each reference."""
MOST_EXPLAINED: Final = 100
"""Problems that are explained: looking for near names is slow, and a hostile list of errors long."""

# plan/checking
FREE_WORK: Final = 10_000
"""Units that the schema of each call's tool may take before they are counted: several times what most take."""
MOST_READ_IN_TICK: Final = 20_000
"""References in all calls of one answer: they are parsed in one step, whenever a lane is opened."""

# plan/config
MOST_SEED: Final = 2**63
MOST_STOPS: Final = 16

# plan/graph
SPELLED_OUT: Final = 8
"""Calls waited for at one place up to which they are listed one by one."""

# plan/checked_plan
MOST_DROPPED: Final = 1_000

# plan/places
PLACES_MOST_NAMES: Final = 200
PER_READER: Final = 20
"""Steps (see `errors.Speller`) for looking at one reader's values."""
PLACES_MOST_LEVELS: Final = 64
PLACES_MOST_REQUIRED: Final = 1_000
"""Required places that are waited for one by one: schemas that share what they refer to name more than there are."""

# plan/submission
SUBMISSION_LIKENESS: Final = 0.8

# plan/waits
MOST_BITS: Final = 10**9
"""Bits of memory for one window of scope waits."""
WAITS_MOST_STEPS: Final = 500_000
"""Steps for one window of scope waits: one of some thousand calls each of which waits for another one listed after it
takes more. Then all scope waits between its calls are left out.
"""

# references
MAX_SEGMENTS: Final = 128
"""Segments of a path: folding descends a path segment by segment."""
MAX_REFERENCES: Final = 256
"""The most references of an expression, which is read again whenever one of its places settles."""

# requests/answers
MOST_EARLY_INSTANCES: Final = 100
"""Instances of a call that runs in all of them that are looked at."""
ANSWERS_SHOWN: Final = 500
"""Characters that are shown of an answer that cannot be read."""
ANSWERS_ROUNDS: Final = 8
"""Rounds in which an answer is checked again without the calls that were found to be wrong."""
MOST_REPEATED_BYTES: Final = 1_000_000
"""Bytes of calls repeated by further errors: each error of a call is logged and shown with the whole call."""
BYTES_PER_ERROR: Final = 1_000
ANSWERS_MOST_MENDED: Final = 10
"""Problems of an answer for which JSON in a text is tried, since each takes a validation."""

# requests/data_blocks
MOST_QUOTED: Final = 200
"""Characters of a call, or of one of its properties, that an error quotes."""

# requests/invalid_calls
MOST_DEPENDENT_INSTANCES: Final = 100
"""Instances of a call that runs in all of them that are looked at."""
MOST_PLACES_LOOKED_UP: Final = 20_000
"""Names of places in an answer that are looked up."""
INVALID_CALLS_MOST_LISTED: Final = 100
"""Misread texts of an answer that are listed; after that only the first of each further call."""

# requests/reading
MOST_DIGITS: Final = 4_000
MOST_BROKEN: Final = 1_000
"""The most texts that begin like JSON and are skipped because they are not."""
MOST_WITH_ASIDES: Final = 3
"""The most skipped texts that are searched for comments, which reads all that follows."""
MOST_PASSED: Final = 3
"""Length of such texts together, as a multiple of the whole text."""
READING_MOST_LOOKED_UP: Final = 100_000
"""Schemas that are asked about a property or an element; after that nulls stay."""

# requests/rendering
DEEPEST: Final = 8
RENDERING_MOST: Final = 50

# requests/schema
SCHEMA_MOST: Final = 100
"""Highest rating that an advisor can give a tool."""

# requests/tool_texts
TOOL_TEXTS_DEEPEST: Final = 6
TOOL_TEXTS_MOST_VALUES: Final = 50
MOST_CHARACTERS: Final = 4_000
TOOL_TEXTS_LONGEST: Final = 64

# schemas/algebra
MOST_NODES: Final = 20_000
"""Nodes of a schema: a larger one counts as one that admits everything."""
MOST_CASES: Final = 4_096
"""Pairs of alternatives that one intersection goes through."""
ALGEBRA_MOST_LEVELS: Final = 200
PER_CASE: Final = 12
PER_DIVISION: Final = 20
"""Hundredths of a unit to divide a number of few digits."""
DIGITS_PER_COMPARISON: Final = 16
DIGITS_PER_NODE: Final = 100
DIGITS_PER_UNIT: Final = 1_000
"""Digits that are divided in one unit: long division takes time with the square of the digits.
"""
ALGEBRA_BUDGET: Final = 600_000
"""Units that one analysis may take. A unit is one node of a schema, some 5 microseconds; see `Algebra.fit`."""
ALGEBRA_SHOWN: Final = 4

# schemas/costs
COSTS_FREE: Final = 100
"""Looks at each part of a value: a schema that takes no more is not worth counting the parts."""
UNITS_PER_ERROR: Final = 10
COSTS_NARROW: Final = 1_000
UNITS_PER_WAY: Final = 30
COSTS_WIDEST: Final = 5_000
"""Schemas applied to one value where `unevaluatedProperties` looks at each: the engine writes that out."""
COSTS_CHARACTERS: Final = 5
COSTS_MOST: Final = 10**12
COSTS_LEVELS: Final = 64
MOST_COMPILED_BYTES: Final = 2**27
"""Bytes of memory that the compiled schemas of a submission may take."""
BYTES_PER_PART: Final = 300
BYTES_PER_STATE: Final = 35
UNITS_PER_NUMBER: Final = 100
"""Units to compare a number with one that is no plain integer."""
UNITS_PER_STRUCTURE: Final = 5
"""Units to compare a value with a list or an object."""
UNITS_PER_DISTINCT: Final = 50
"""Units for each part of a list whose elements have to be unique."""
COSTS_PLAIN: Final = 2**63
FEW_DIGITS: Final = 20

# schemas/validation
MOST_BYTES: Final = 2**23
"""Bytes of values that are sent for checking at a time; the rest is sent when these verdicts have come."""
VALIDATION_MOST_LISTED: Final = 1_000_000
"""Units of work to list all that is wrong; if it may take more, only the first problem is listed."""
HEAVY_LISTED: Final = 30_000
"""Units from which on what is wrong is listed in another process where there is one: an error takes some microseconds,
and one of `anyOf` holds those of all its branches."""
VALIDATION_MOST_TRIED: Final = 10_000
"""Looks at one part of a value; if listing may take more, it is only said that something is wrong."""
PATHS_KEPT: Final = 1_024
MOST_BYTES_KEPT: Final = 2**27
"""Bytes of memory that cached schemas may take."""
BYTES_EACH: Final = 20_000

# schemas/walk
WALK_DEEPEST: Final = 100
"""Nesting of schemas up to which a walk goes down."""
MOST_STEPS_BACK: Final = 100_000
"""Steps back in one match; one that takes more is given up, after some milliseconds, and what depends on it is refused.
"""
MOST_REPEATS: Final = 10**9
WITHOUT_NUMBERS: Final = 4
"""Number of the draft in which `exclusiveMinimum` is a boolean, and `$id` is `id`."""

# near_misses
NEAR_MISSES_MOST_MENDED: Final = 20
NEAR_MISSES_MOST_NAMED: Final = 20
NEAR_MISSES_MOST_SHOWN: Final = 300
"""Characters of a corrected text that is shown whole."""
NEAR_MISSES_LONGEST: Final = 10_000
"""Characters of a text for which corrections are guessed."""
NEAR_MISSES_MOST_KINDS: Final = 20
MOST_FIRST: Final = 100
"""Index from which all elements of a list are taken to have the same schema."""

# state/fold
FOLD_MOST_NAMED: Final = 12
FOLD_MOST_SHOWN: Final = 60
"""Characters of a field's name."""

# state/kinds
MOST_OWNED: Final = 65_536
MOST_COPIED: Final = 32
"""Entries of a global object up to which an instance that writes into it copies it."""

# state/labels
MOST_LABELS: Final = 16
"""Sources that a message of a submission may name."""
LABELS_LONGEST: Final = 100
MOST_FIELDS: Final = 64
"""Paths of fields by which one declaration labels results."""

# state/scopes
MOST_LISTS: Final = 10

# templates
TEMPLATES_CACHED: Final = 2_000
"""Characters of the longest text whose reading is kept."""
TEMPLATES_SHORT: Final = 200
"""Characters of the longest expression in braces whose reading is kept: long texts repeat them."""

# Of workflows (protocol.analysis.visibility).

WORKFLOWS: Final = 100
"""Workflows of one submission, those among them that they call: each is checked with all others."""
CALLS_COUNTED: Final = 10**12
"""More calls of one code are not told from each other."""
