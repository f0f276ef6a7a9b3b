"""Answer texts: finding the one JSON object in what a model has written (SPEC R12.6a).

    <think>Three of them cost 60.</think>
    Here is the plan:
    ```json
    {"calls": [{"_tool": "order", "count": 3}], "output": null}
    ```

The object is the one that has `calls` or `output`. Nothing else is guessed: what only looks like it, or occurs twice
with different values, is an error that says what was expected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from .. import limits
from ..calls.meta_properties import RESULT
from ..errors import Problem, no_json, pointer, repeated_key
from ..paths import parts_of
from ..plan.documents import without_comments
from ..schemas import compiled, excerpt
from ..schemas.walk import Schema, applied, normalized, parts_at
from .schema import Request
from .tool_texts import OUTPUT, Function

T = TypeVar("T")

ANSWER_KEYS: Final = ("calls", "output")
"""Keys of an answer; an object with one of them is taken for it."""
_THINKING: Final = ("<think>", "</think>")
_STOP: Final = re.compile(r"[{\[]|</?think>")
_BEGINS: Final = re.compile(r'\{\s*(?:["}]|/[/*])|\[\s*(?:[\[{]|/[/*])')
"""The beginning of JSON that may hold an answer; other brackets belong to the words around it."""
_MARK: Final = re.compile(r'["{}\[\]]')
_STRING_END: Final = re.compile(r'"|\\.?', re.DOTALL)
_LEFT_OUT: Final = ("...", "…")
"""Signs for omitted content: a text with one shows the shape of an answer, and is none."""
_PAIRS: Final = {"}": "{", "]": "["}
_ASIDES: Final = frozenset("/}],")
"""Where reading JSON stops at a comment, or at a comma before a closing bracket."""
_AROUND: Final = re.compile(r"\A.*</think>|<think>.*?(?:</think>|\Z)|```[a-zA-Z]*", re.DOTALL)
"""Text that may surround a call, or a list of calls, that is the whole answer."""


class Unreadable(ValueError):
    """A text that is not JSON, that repeats a key in an object, or that has no answer."""


def decoded(text: str, *, is_lenient: bool = False) -> Any:
    """The value of a JSON text that is nothing else, but for comments and commas before a closing bracket. Raises
    `Unreadable`. Where it is lenient, numbers that cannot be kept are read all the same: only the part that holds one
    is refused (SPEC R4.1).
    """
    decoder = _LENIENT if is_lenient else _DECODER
    try:
        return _read(text, decoder.decode)
    except (ValueError, RecursionError) as error:
        raise _not_json(error) from None


def _read(text: str, read: Callable[[str], T]) -> T:
    """Read a JSON text; without comments and commas before a closing bracket if it stops there (SPEC R12.4)."""
    try:
        return read(text)
    except json.JSONDecodeError as error:
        if text[error.pos : error.pos + 1] not in _ASIDES or (plain := without_comments(text, is_whole=False)) == text:
            raise
        return read(plain)


def bare_calls(value: Any) -> list[Any] | None:
    """The calls that a call, or a list of calls, is as an answer; None where it is neither (SPEC R12.4)."""
    calls = [value] if isinstance(value, dict) else value
    is_list = isinstance(calls, list) and bool(calls)
    return calls if is_list and all(isinstance(call, dict) and "_tool" in call for call in calls) else None


def find_answer(text: str, keys: Collection[str] = ANSWER_KEYS, *, is_lenient: bool = False) -> dict[str, Any]:
    """The object in a text that has one of these keys; lenient as in `decoded`. Raises `Unreadable` where there is
    none, or where several differ.
    """
    return _found(text, keys, _LENIENT if is_lenient else _DECODER)[0][0]


def words_beside(text: str) -> str:
    """Text around the answer's object; empty if there is none."""
    words, at = "", 0
    with suppress(Unreadable):
        for _, start, end in _found(text, ANSWER_KEYS, _LENIENT):
            words, at = words + text[at:start], end
    return (words + text[at:]).strip() if at else ""


def _found(text: str, keys: Collection[str], decoder: json.JSONDecoder) -> list[tuple[dict[str, Any], int, int]]:
    """All occurrences of the object, each with its start and end."""
    found: list[tuple[dict[str, Any], int, int]] = []
    at, left, broken = 0, limits.MOST_PASSED * len(text), 0
    bare: list[tuple[list[Any], int, int]] = []
    while (stop := _STOP.search(text, at)) is not None and left > 0 and broken < limits.MOST_BROKEN:
        at = stop.start()
        if stop[0] in _THINKING:
            end = text.find(_THINKING[1], at)
            if stop[0] == _THINKING[1]:
                found.clear()  # it began in the prompt
                bare.clear()
            at = len(text) if end < 0 else end + len(_THINKING[1])
        elif not _BEGINS.match(text, at):
            at += 1
        else:
            start = at
            try:
                value, at = _value_at(text, start, decoder, may_have_asides=broken < limits.MOST_WITH_ASIDES)
            except (ValueError, RecursionError) as error:
                behind = _end_of(text, at)
                if not _is_shape(text, error) and _names(text[at:behind], keys):
                    raise _not_json(error) from None
                left -= (len(text) if behind is None else behind) - at
                at = at + 1 if behind is None else behind
                broken += 1
            else:
                if isinstance(value, dict) and value.keys() & set(keys):
                    found.append((value, start, at))
                elif "calls" in keys and (calls := bare_calls(value)) is not None:
                    bare.append((calls, start, at))
    if stop is not None:
        raise Unreadable("too many parts look like JSON but are not")
    if not found and len(bare) == 1:
        calls, start, end = bare[0]
        if not _AROUND.sub("", without_comments(text[:start] + text[end:], is_whole=False)).strip():
            return [({"calls": calls}, start, end)]
    if not found:
        raise Unreadable(missing(keys) if text.strip() else f"it is empty; {expected(keys)}")
    if any(_compact(each) != _compact(found[0][0]) for each, *_ in found[1:]):
        raise Unreadable(f"it has {len(found)} different objects with {_either(keys)}: write one")
    return found


def _value_at(text: str, at: int, decoder: json.JSONDecoder, *, may_have_asides: bool) -> tuple[Any, int]:
    """The JSON value that begins there, and where it ends; it may have comments, and commas before a closing bracket.
    Raises `ValueError`, `RecursionError`.
    """
    try:
        return decoder.raw_decode(text, at)
    except json.JSONDecodeError as error:
        if not may_have_asides or text[error.pos : error.pos + 1] not in _ASIDES:
            raise
        rest = text[at:]
        if (plain := without_comments(rest, is_whole=False)) == rest:
            raise
        try:
            value, size = decoder.raw_decode(plain)
        except json.JSONDecodeError as other:
            raise json.JSONDecodeError(other.msg, text, at + other.pos) from None
        return value, at + size


def _end_of(text: str, at: int) -> int | None:
    """Position after the bracket that closes the one at `at`; None if none does."""
    is_open: list[str] = []
    while (mark := _MARK.search(text, at)) is not None:
        at = mark.end()
        if mark[0] == '"':
            while (end := _STRING_END.search(text, at)) is not None and end[0] != '"':
                at = end.end()
            if end is None:
                return None
            at = end.end()
        elif mark[0] in _PAIRS:
            if is_open.pop() != _PAIRS[mark[0]]:
                return None
            if not is_open:
                return at
        else:
            is_open.append(mark[0])
    return None


def _is_shape(text: str, error: Exception) -> bool:
    """Whether the text fails to parse at a sign for omitted content."""
    return isinstance(error, json.JSONDecodeError) and text.startswith(_LEFT_OUT, error.pos)


def _names(text: str, keys: Collection[str]) -> bool:
    """Whether a text names one of the keys."""
    return re.search(rf'"(?:{"|".join(map(re.escape, keys))})"\s*:', text) is not None


def _not_json(error: ValueError | RecursionError) -> Unreadable:
    if isinstance(error, Unreadable):
        return error
    if isinstance(error, RecursionError):
        return Unreadable("it is nested too deeply")
    return Unreadable(f"it is not JSON ({no_json(error)})")


def missing(keys: Collection[str] = ANSWER_KEYS) -> str:
    """Error text for an answer that has none of the keys."""
    return f"it has no JSON object with {_either(keys)}; {expected(keys)}"


def expected(keys: Collection[str]) -> str:
    """Words for the expected shape of an answer."""
    shape = ", ".join(f'"{key}": …' for key in keys)
    return f"expected {{{shape}}}"


def _either(keys: Collection[str]) -> str:
    return " or ".join(f'"{key}"' for key in keys)


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise Unreadable(repeated_key(pairs))
    return value


def _refused(name: str) -> Any:
    raise Unreadable(f"{name} is not a JSON value")


def _integer(text: str) -> int:
    """An integer; of one of more digits than Python reads, the first: it is beyond 64 bits in any case."""
    return int(text[: limits.MOST_DIGITS])


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refused)
_LENIENT: Final = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer)


# Function answers: what a model has answered by calling functions, as the answer that it is (SPEC R12.6).
#
#     find(city="Omsk", _outputPath="†state.hotel"), output(output="†state.hotel.id")
#     {"calls": [{"_tool": "find", "city": "Omsk", "_outputPath": "†state.hotel"}], "output": "†state.hotel.id"}
#
# From there on it is read as any other. Arguments that cannot be read are kept as a text, under `_arguments` of their
# call: that call is an error, the others run. Those of the output are kept next to the calls. Text besides calls is no
# part of the answer; if there are no calls and the output may be a text, it is the output.

ARGUMENTS: Final = "_arguments"
"""Property that keeps arguments that cannot be read, as a text."""
_BEGIN: Final = '{"calls": ['
_NO_CALL: Final = (
    "the answer calls no tool and gives no result: call the tools that you need next, or `output` with the result"
)


SAYS_NOTHING: Final = "the answer has no calls and no output: write the calls that you need next, or the output"
"""Error text for an answer without calls and output that is a JSON object: the schema admits it, and it costs a tick
(SPEC R12.3).
"""


class FunctionAnswer:
    """Writes the answer call by call, so that calls can begin while others are written.

    >>> answer = FunctionAnswer([Function("a.b", "a_b", "", {})])
    >>> answer.call("a_b", '{"x": 1}') + answer.end()
    '{"calls": [{"_tool": "a.b", "x": 1}], "output": null}'
    """

    def __init__(self, functions: Sequence[Function]) -> None:
        self._tools = {function.name: function.tool for function in functions}
        self._with_parameters = {function.name for function in functions if _has_parameters(function)}
        self._has_calls = False
        self._output: str | None = None
        self._unread: str | None = None
        """The arguments of the output, where they cannot be read, or differ from those before."""

    def call(self, name: str, arguments: str) -> str:
        """Add a call of a function, whose arguments are a JSON text; return the text that it adds to the answer."""
        text = plain_json(arguments.strip()) or ("" if name in self._with_parameters else "{}")
        tool = self._tools.get(name, name)
        if tool is None:
            self._take_output(text)
            return ""
        begin = ", " if self._has_calls else _BEGIN
        self._has_calls = True
        inside = text[1:] if arguments_problem(text) is None else f"{json.dumps(ARGUMENTS)}: {json.dumps(text)}}}"
        comma = "" if inside.lstrip() == "}" else ", "
        return f'{begin}{{"_tool": {json.dumps(tool)}{comma}{inside}'

    @property
    def before_output(self) -> str:
        """Text between the calls and the output, if no call follows."""
        return f'{"" if self._has_calls else _BEGIN}], "{OUTPUT}": '

    def end(self) -> str:
        """Text after the calls. Nothing is added after it."""
        unread = f", {json.dumps(ARGUMENTS)}: {json.dumps(self._unread)}" if self._unread is not None else ""
        output = self._output if self._output is not None and self._unread is None else "null"
        return f"{self.before_output}{output}{unread}}}"

    def _take_output(self, text: str) -> None:
        written = json.dumps(decoded(text)[OUTPUT]) if output_problem(text) is None else None
        if written is None or self._output not in (None, written):
            self._unread = text
        else:
            self._output = written


def plain_json(text: str) -> str:
    """A text without the comments, and commas before a closing bracket, that alone keep it from being JSON."""

    def checked(plain: str) -> str:
        _LENIENT.decode(plain)
        return plain

    try:
        return _read(text, checked)
    except (ValueError, RecursionError):
        return text


def _has_parameters(function: Function) -> bool:
    """Whether a call may give it parameters besides meta-properties."""
    own = [name for name in function.parameters.get("properties", ()) if not name.startswith("_")]
    return bool(own) or function.parameters.get("additionalProperties") is not False


def arguments_problem(text: str) -> str | None:
    """Why a text is no arguments of a tool; None where it is."""
    if not text:
        return "its arguments are missing: write {} if it has none"
    try:
        value = decoded(text)
    except Unreadable as error:
        return f"its arguments cannot be read: {error}"
    if not isinstance(value, dict):
        return "its arguments are not a JSON object of parameters"
    return "its arguments have `_tool`: leave it out, the name of the function says it" if "_tool" in value else None


def output_problem(text: str) -> str | None:
    """Why a text is no arguments of the output; None where it is."""
    try:
        value = decoded(text)
    except Unreadable as error:
        return f"the arguments of {OUTPUT} cannot be read: {error}"
    is_output = isinstance(value, dict) and value.keys() == {OUTPUT}
    return None if is_output else f"{OUTPUT} has one argument, `{OUTPUT}`, which holds the whole result"


def with_words(request: Request, answer: str | Mapping[str, Any], words: str) -> str | Mapping[str, Any]:
    """The answer together with the text besides its calls: they are the output if there are no calls. Raises
    `Unreadable` if there are no words, or they cannot be an output.
    """
    if not request.is_native:
        return answer
    value = decoded(answer) if isinstance(answer, str) else answer
    if value != {"calls": [], "output": None}:
        return answer
    if not words.strip() or not request.may_be_text:
        raise Unreadable(_NO_CALL)
    return {"calls": [], "output": words}


# The wire: what only a provider's format requires is taken out again (SPEC R12.6).
#
# Strict formats want every property of an object there, so that one which is optional is sent as null. Such a null is
# dropped: where a property may be left out, and what the request says of it admits no null. A value that would be made
# wrong by that stays as it is.
#
# They admit no properties that the schema does not list. Further properties go into one more, `_json`, as the text of a
# JSON object; without any listed property the text may be of any value, which then replaces the object.
# Such a format writes every `_json`; in an answer by any other it is a property like all others.

AS_TEXT: Final = "_json"
"""The property whose text holds what a strict format cannot say."""


def with_texts_read(answer: Mapping[str, Any], *at: str | int) -> tuple[dict[str, Any], list[Problem]]:
    """The answer with its `_json` texts replaced by what they hold, and the problems of those texts; `at` is its place.
    What is in such a text is taken as it is.
    """
    read = {key: value_with_texts_read(value, *at, key) for key, value in answer.items()}
    return {key: value for key, (value, _) in read.items()}, [each for _, found in read.values() for each in found]


def value_with_texts_read(value: Any, *at: str | int) -> tuple[Any, list[Problem]]:
    """Read the `_json` texts inside a value, as `with_texts_read` does for an answer."""
    if isinstance(value, list):
        items = [value_with_texts_read(item, *at, index) for index, item in enumerate(value)]
        return [item for item, _ in items], [problem for _, found in items for problem in found]
    if not isinstance(value, dict):
        return value, []
    beside, problems = with_texts_read({key: item for key, item in value.items() if key != AS_TEXT}, *at)
    text = value.get(AS_TEXT)
    if text is None:
        return beside, problems
    try:
        return _joined(beside, text), problems
    except Unreadable as error:
        return beside, [*problems, Problem(pointer(*at, AS_TEXT), f"it should hold JSON as a text: {error}")]


def _joined(beside: dict[str, Any], text: Any) -> Any:
    """Value of a `_json` text, joined with the other properties. Raises `Unreadable`."""
    held = decoded(text) if isinstance(text, str) else text
    if not beside:
        return held
    if not isinstance(held, dict):
        raise Unreadable("it has other properties beside it, so it must hold an object")
    if twice := beside.keys() & held.keys():
        raise Unreadable(f"{min(twice)!r} is both in it and beside it")
    return {**beside, **held}


def without_nulls(request: Request, answer: Mapping[str, Any]) -> dict[str, Any]:
    """The answer without the nulls that mean omitted properties."""
    cleaned = dict(answer)
    if isinstance(calls := answer.get("calls"), list):
        cleaned["calls"] = [_call_without(request, call) for call in calls]
    if "output" in answer:
        cleaned["output"] = value_without_nulls(request.schema, answer["output"])
    return cleaned


def value_without_nulls(schema: Any, value: Any) -> Any:
    """The value without the nulls that mean omitted properties, by its schema."""
    if not isinstance(value, (dict, list)):
        return value
    return _cleaned(value, normalized(schema))


def is_forgotten(request: Request, call: Mapping[str, Any]) -> bool:
    """Whether a call says that its result goes nowhere: by an `_outputPath` of null, where calls without one are given
    a place of their own, and no wire sends null for what is left out (SPEC R12.4, R12.6).
    """
    return request.may_say_null and "_outputPath" in call and call["_outputPath"] is None


def _call_without(request: Request, call: Any) -> Any:
    """A call; its meta-properties are never null but for `_output`, and for the place of a result that goes nowhere."""
    tool = request.tools.get(call["_tool"]) if isinstance(call, dict) and isinstance(call.get("_tool"), str) else None
    if tool is None:
        return call
    kept = {
        key: value
        for key, value in call.items()
        if value is not None or not key.startswith("_") or key in ("_tool", RESULT)
    }
    cleaned = _cleaned(kept, tool.document)
    return {**cleaned, "_outputPath": None} if is_forgotten(request, call) else cleaned


def _cleaned(value: Any, schema: Schema) -> Any:
    """The value without nulls that mean omitted properties; unchanged if it fits the schema only with them
    (`const`, `minProperties`).
    """
    if all(part is not None for part in parts_of(value)):
        return value
    cleaned = _SchemaPlaces(schema).without_nulls(value)
    if cleaned == value:
        return value
    fitting = compiled(schema)
    return value if fitting.problems(cleaned) and not fitting.problems(value) else cleaned


class _SchemaPlaces:
    """Finds what a document says of the places of a value, each place once, up to a limit."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._known: dict[tuple[int, ...], _SchemaPlace] = {}
        self._left = limits.READING_MOST_LOOKED_UP

    def without_nulls(self, value: Any, place: _SchemaPlace | None = None) -> Any:
        """The value at a place, by default the root, without nulls that mean omitted properties."""
        place = place or self._of([self._root])
        if isinstance(value, list):
            most = place.prefixed
            return [self.without_nulls(item, self._below(place, min(index, most))) for index, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        kept = {}
        for key, item in value.items():
            below = self._below(place, key)
            if item is not None or key in place.required or not below.schemas or self._admits_null(below):
                kept[key] = self.without_nulls(item, below)
        return kept

    def _of(self, schemas: Sequence[Schema]) -> _SchemaPlace:
        """The place that these schemas describe."""
        key = tuple(map(id, schemas))
        if key not in self._known:
            self._known[key] = _SchemaPlace(schemas, applied(schemas, self._root))
        return self._known[key]

    def _below(self, place: _SchemaPlace, segment: str | int) -> _SchemaPlace:
        """The place of a property or an element; an undescribed one once too much was looked up."""
        if segment not in place.below:
            self._left -= len(place.parts)
            parts = place.parts if self._left >= 0 else ()
            place.below[segment] = self._of(
                [below for part in parts for below in parts_at(part, (segment,), self._root)]
            )
        return place.below[segment]

    def _admits_null(self, place: _SchemaPlace) -> bool:
        """Whether a place may be null."""
        if place.admits_null is None:
            place.admits_null = any(
                schema is True
                or (isinstance(schema, dict) and not compiled(excerpt(schema, self._root)).problems(None))
                for schema in place.schemas
            )
        return place.admits_null


class _SchemaPlace:
    """The parts of a schema that speak of one place of a value."""

    def __init__(self, schemas: Sequence[Schema], parts: Sequence[dict[str, Any]]) -> None:
        self.schemas, self.parts = schemas, parts
        self.required = {name for part in parts for name in part.get("required", ())}
        self.prefixed = max((len(part.get("prefixItems", ())) for part in parts), default=0)
        """The number of elements that may have schemas of their own; all others share one."""
        self.below: dict[str | int, _SchemaPlace] = {}
        self.admits_null: bool | None = None
