"""Inventions: what calls are taken to give where nothing is carried out (SPEC R6.7).

A value that the call's `_output` schema admits (`samples`) and, where that leaves it open, such as others need
(`moulds`). The first trial has the simplest value of each and the first alternatives; each other one a `variety` of
values, alternatives and exceptions, so that all of them together show what can happen.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, TypeVar

from protocol.calls.call import Call
from protocol.calls.outputs import Output, Write, verify_writes
from protocol.calls.tools import Executor, Tool
from protocol.engine.execution import Failure, Success
from protocol.language.errors import Conflict, OutputError
from protocol.language.paths import MISSING, copied
from protocol.language.references import Path, Reference
from protocol.schemas import compiled
from protocol.schemas.excerpts import excerpt_at
from protocol.state.fold import Fold
from protocol.state.operations import Method
from protocol.submission.layout import Layout

from .moulds import Mould, Need, cast, moulds_of, of_elements, recast
from .samples import PLACEHOLDER, sample
from .variety import Variety

T = TypeVar("T")
Group = tuple[Reference, ...]
"""One alternative of an output path."""

_MOST_TRIED: Final = 8
"""So many samples are made of a schema that may ask for more than its words lead to."""

_MOST_NEEDS: Final = 64
"""Of the needs that are not all admitted together so many are tried one by one."""

_EXCEPTION: Final = Failure("Exception", "made up")


class Inventions:
    """The made-up results of one run; a call has the same one in all instances."""

    def __init__(
        self,
        layout: Layout,
        trial: int = 0,
        choices: Mapping[int, int | None] | None = None,
        favoured: Container[int] = (),
    ) -> None:
        self._layout = layout
        self._trial = trial
        self._choices = choices or {}
        self._variety = Variety(trial)
        self._moulds = moulds_of(layout, self._variety, favoured)
        self._results: dict[int, Success | Failure] = {}
        self.unfit: list[str] = []
        """The tools of which nothing could be made up that fits their own `_output`: it is not applied."""
        self.tools = {name: self._applicable(tool) for name, tool in layout.tools.items()}
        """The tools, as they are applied."""

    def result(self, call: Call, here: Fold) -> Success | Failure:
        """What a call is taken to end with; `here` is what is there by now, as it sees it."""
        if call.output is None:
            return Success(None)
        if call.index not in self._results:
            self._results[call.index] = self._ended(call, here)
        return self._results[call.index]

    def ending(self, at_work: list[T]) -> list[T]:
        """Take out the calls at work that end next: in the first trial all, in the order they began; else one."""
        if self._trial:
            return [at_work.pop(self._variety.pick(range(len(at_work))))]
        ending, at_work[:] = at_work[:], []
        return ending

    def _ended(self, call: Call, here: Fold) -> Success | Failure:
        way = self._choices[call.index] if call.index in self._choices else self._variety.pick(self._ways(call))
        if way is None:
            return _EXCEPTION
        assert call.output is not None
        chosen = call.output.alternatives[way]
        value = self._trial_value(call, here, chosen) if self._trial else self._value(call, here, chosen)
        return Success(Output(path_of(call, way), value))

    def _ways(self, call: Call) -> list[int | None]:
        """How a call can end; where somebody reads errors, every call can end with one."""
        ways = ways_of(call)
        return [*ways, None] if self._some_read_errors and None not in ways else ways

    @cached_property
    def _some_read_errors(self) -> bool:
        return any(
            place.kind == "error"
            for call in self._layout.calls
            for read in call.expressions
            for place in read.references
        )

    def _value(self, call: Call, here: Fold, chosen: Group) -> Any:
        """The simplest value, with what its kind and its readers need wherever nothing is said against that."""
        schema = self._schema(call, chosen[0], here)
        moulds, adds_to_list = self._wanted(call, here)
        said = _said_by_kinds(call, chosen, here, adds_to_list)
        is_held = schema is not None and call.tool not in self.unfit
        blank = _Blank(call, here, chosen, schema if is_held else None, said, adds_to_list)
        joins = call.method in (Method.MERGE, Method.ASSIGN)
        simplest: Any = {} if joins else [PLACEHOLDER] if adds_to_list else PLACEHOLDER
        needs = [] if joins else [Need((), part, sample(part)) for part in said]
        needs += [need for mould in moulds for need in mould]
        value = self._filled(blank, simplest if schema is None else sample(schema), needs)
        return blank.unlike_others(value) if any(map(_is_of_a_set, self._said_of_lists(blank))) else value

    def _filled(self, blank: _Blank, value: Any, needs: list[Need]) -> Any:
        """A value with all that is needed, or as much of it as is admitted."""
        whole = blank.cast(value, needs)
        if blank.admits(whole):
            return whole
        rules = [rule for rule in (blank.schema, *blank.said) if rule is not None]
        for need in needs[:_MOST_NEEDS] if rules else ():
            for example in self._examples(need, *rules):
                wanted = blank.cast(value, [example])
                if blank.admits(wanted):
                    value = wanted
                    break
        return value

    def _said_of_lists(self, blank: _Blank) -> Iterator[Any]:
        """What kinds and readers say of the lists that a result is added to."""
        if blank.adds_to_list or blank.call.method is Method.PUSH:
            yield from (_schema_there(place, place.path, blank.here) for place in blank.places)
            moulds = self._moulds.get(blank.call.index, [])
            yield from (need.schema for mould in moulds for need in mould if not need.path)

    def _trial_value(self, call: Call, here: Fold, chosen: Group) -> Any:
        """Any value, mostly with what its readers need wherever its schema has nothing against that."""
        schema = self._schema(call, chosen[0], here)
        found = self._sample(schema) if schema is not None else MISSING
        value = sample(True if schema is None else schema, self._variety) if found is MISSING else found
        moulds, adds_to_list = self._wanted(call, here)
        assert call.output is not None
        asked = [mould for place, mould in zip(call.output.references, moulds, strict=False) if place in chosen]
        admitted = _said_by_kinds(call, chosen, here, adds_to_list)
        needs = [Need((), part, sample(part, self._variety)) for part in admitted]
        needs += [need for mould in asked for need in mould]
        rules = [part for part in (schema, *(admitted if not adds_to_list else ())) if part is not None]
        for need in needs if self._variety.pick([True, True, False]) else ():
            for example in self._examples(need, *([] if schema is None else [schema])):
                element = value[0] if adds_to_list and isinstance(value, list) and value else value
                wanted = recast(copied(element), example)
                wanted = [wanted] if adds_to_list else wanted
                if not any(compiled(rule).problems(wanted) for rule in rules):
                    value = wanted
                    break
        return value

    def _examples(self, need: Need, *rules: Any) -> Iterator[Need]:
        """What is needed at a place, then what each rule of the result admits there: of a map it names no key."""
        yield need
        for rule in rules if need.path else ():
            if (part := excerpt_at(need.path, compiled(rule))) is not None:
                yield Need(need.path, part, sample(part, self._variety))

    def _wanted(self, call: Call, here: Fold) -> tuple[list[Mould], bool]:
        """What others need of a result, and whether they need it of each element of a list that it adds."""
        moulds = self._moulds.get(call.index, [])
        adds_to_list = call.method is Method.CONCAT and _is_list(call, here)
        if adds_to_list or call.method is Method.PUSH:
            moulds = [of_elements(mould, self._variety) for mould in moulds]
        return moulds, adds_to_list

    def _schema(self, call: Call, place: Reference, here: Fold) -> Any:
        """What is known of the result: the tool's `_output`, the schema of a delegate, that of the place written."""
        tool = self._layout.tools.get(call.tool)
        if tool is not None and tool.output_schema is not None:
            return tool.output_schema
        definition = self._layout.submission.delegates.get(call.runner.name)
        if call.runner.executor is Executor.DELEGATE and isinstance(definition, Mapping) and definition.get("schema"):
            return definition["schema"]
        return _schema_there(place, place.path, here) if call.method is Method.SET and place.path else None

    def _applicable(self, tool: Tool) -> Tool:
        """The tool; not held to its `_output` where what is made up does not fit that."""
        if tool.output_schema is None or self._sample(tool.output_schema) is not MISSING:
            return tool
        self.unfit.append(tool.name)
        return replace(tool, is_held=False)

    def _sample(self, schema: Any) -> Any:
        """A sample that fits the schema, or `MISSING`."""
        samples = (sample(schema, self._variety) for _ in range(_MOST_TRIED if self._trial else 1))
        return next((value for value in samples if not compiled(schema).problems(value)), MISSING)


@dataclass(frozen=True, slots=True)
class _Blank:
    """One result that is to be made up: where it is written, and what is said of it."""

    call: Call
    here: Fold
    places: Group
    schema: Any
    """What the whole of it is held to, if anything."""
    said: list[Any]
    """What the schemas of kinds say of it, or of each of its elements."""
    adds_to_list: bool

    def admits(self, value: Any) -> bool:
        """Whether nothing is said against a value, and it can be written."""
        try:
            verify_writes(self.call, [Write(place, value) for place in self.places], self.here)
        except (OutputError, Conflict):
            return False
        return self.schema is None or not compiled(self.schema).problems(value)

    def cast(self, value: Any, mould: Mould) -> Any:
        """The value with what a mould needs, of a list to add in each of its elements."""
        if self.adds_to_list and isinstance(value, list):
            return [cast(copied(item), mould) for item in value]
        return cast(copied(value), mould)

    def unlike_others(self, value: Any) -> Any:
        """The value, or another one that is admitted, such as no other call has."""
        samples = (sample(part, Variety(trial)) for part in self.said for trial in range(_MOST_TRIED))
        wrapped = ([item] if self.adds_to_list else item for item in samples)
        return next(filter(self.admits, (_numbered(value, self.call.index), *wrapped)), value)


def ways_of(call: Call) -> list[int | None]:
    """The alternatives that a call can choose (from 0; SPEC R4.4); None is an exception that goes to the last one."""
    several = len(call.output.alternatives) if call.output is not None else 1
    chosen: list[int | None] = list(range(several if call.runner.executor is Executor.ACTIVITY else 1))
    return chosen if several == 1 else [*chosen, None]


def path_of(call: Call, number: int) -> str:
    """An alternative of a call's output path (from 0), as a result names it."""
    assert call.output is not None
    return " && ".join(map(str, call.output.alternatives[number]))


def _is_list(call: Call, here: Fold) -> bool:
    assert call.output is not None
    try:
        return any(isinstance(here.value(place), list) for place in call.output.references)
    except Conflict:
        return False


def _said_by_kinds(call: Call, places: Group, here: Fold, adds_to_list: bool) -> list[Any]:
    """What the schemas of kinds say of what a call writes; of a list that it adds to, of each element."""
    below: Path = (0,) if adds_to_list or call.method is Method.PUSH else ()
    said = (_schema_there(place, (*place.path, *below), here) for place in places if place.path)
    return [part for part in said if part is not None]


def _schema_there(place: Reference, path: Path, here: Fold) -> Any:
    """What the schema of the kind says of what is at a path, or None."""
    schema = here.schema(place.kind)
    return excerpt_at(path, compiled(schema)) if schema is not MISSING else None


def _is_of_a_set(schema: Any) -> bool:
    """Whether no two elements of a list may be alike."""
    parts = compiled(schema).parts(()) if schema is not None else ()
    return any(isinstance(part, dict) and part.get("uniqueItems") is True for part in parts)


def _numbered(value: Any, number: int) -> Any:
    """A value with a number in each of its texts and numbers."""
    if isinstance(value, dict):
        return {key: _numbered(item, number) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbered(item, number) for item in value]
    if isinstance(value, str):
        return f"{value}{number}"
    return value + number if isinstance(value, (int, float)) and not isinstance(value, bool) else value
