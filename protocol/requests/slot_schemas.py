"""Slot schemas: what a model may write as the call of one slot of a staged plan (SPEC R12.7).

A tool's call schema without a place to write to, which the engine gives or the tool pins, and with only those
references that are offered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from json import dumps
from typing import Any, Final

from acts_celery.protocol.calls.tools import Executor, Tool
from acts_celery.protocol.language.errors import ExpressionError
from acts_celery.protocol.language.paths import MISSING
from acts_celery.protocol.language.references import Reference, parse_output_path
from acts_celery.protocol.schemas import CompiledSchema, Schema, compiled, excerpt
from acts_celery.protocol.schemas.parts import parts_at
from acts_celery.protocol.state.fold import Fold

from .call_schemas import CallComposing
from .narrowing import Narrowing
from .offered_places import OfferedPlaces, SlotResult

_KINDS: Final = ("state", "data", "staged")
"""Where results are put that no tool pins: the first kind that takes them."""


@dataclass(frozen=True)
class SlotSchema(CallComposing):
    """Composes the schema of one slot."""

    places: OfferedPlaces
    gives_result: bool | None = None
    """Whether a latent call has a result, or has none; where it is not said, it may have one."""

    def variants(self, known: OfferedPlaces) -> dict[str, Any]:
        """The schema. A latent call with a result refers only to what is there already (SPEC R12.4)."""
        if not self._is_latent or self.request.is_lazy or not (self.places.has_results and self._said_of_results):
            return self.composed()
        given, asked = self.at(known, gives_result=True), self.at(self.places, gives_result=False)
        return {"anyOf": [given.composed(), *([asked.composed()] if self.request.known.model else [])]}

    def at(self, places: OfferedPlaces, *, gives_result: bool | None = None) -> SlotSchema:
        """The same where other places are there; what is known of its tool is kept."""
        other = replace(self, places=places, gives_result=gives_result)
        vars(other).update({name: self.__dict__[name] for name in _OF_THE_TOOL if name in self.__dict__})
        return other

    def composed(self) -> dict[str, Any]:
        """The schema of one variant."""
        schema = super().composed()
        return {**schema, "required": [*schema["required"], "_output"]} if self.gives_result else schema

    def path(self, name: str, readers: Sequence[Fold] = (), taken: Sequence[Reference] = ()) -> str | None:
        """The place that the engine gives; None where the tool gives one, or admits none."""
        if self.listed_paths or False in self._paths:
            return None
        for kind in _KINDS:
            place = Reference(kind, (name,))
            is_taken = any(place.overlaps(each) for each in taken)
            if (
                not is_taken
                and not self._admitted.problems(str(place))
                and all(_is_free(place, fold) for fold in readers)
            ):
                return str(place)
        return None

    @cached_property
    def can_be_chosen(self) -> bool:
        """Whether there is a place for its result, or it has none by its tool; and nothing else hinges on that place,
        which a model is not shown. What is carried out for each element of a list is not offered.
        """
        if "_each" in self.tool.constants or "_each" in self._required:
            return False
        if any("_outputPath" in dumps(condition) for condition in self._conditions()):
            return False
        return bool(self.listed_paths) or False in self._paths or self.path("s0") is not None

    @cached_property
    def listed_paths(self) -> tuple[str, ...]:
        """The texts that its tool lists for `_outputPath`; a single one is not shown, but filled in."""
        if (pinned := self.tool.constants.get("_outputPath")) is not None:
            return (pinned,)
        parts = self._applied(self._paths)
        listed = [value for part in parts for value in (*part.get("enum", ()), part.get("const"))]
        return tuple(
            dict.fromkeys(text for text in listed if isinstance(text, str) and not self._admitted.problems(text))
        )

    @property
    def pinned(self) -> list[Reference]:
        """All places that its tool lets it write to."""
        return [place for path in self.listed_paths for place in _references(path)]

    def written(self, path: str | None, elsewhere: Sequence[Reference]) -> Iterator[SlotResult]:
        """The place that a plain result is written to, where that is certain and no other call writes there."""
        paths = self.listed_paths if path is None else (path,)
        places = _references(paths[0]) if len(paths) == 1 else []
        is_plain = self.tool.constants.get("_outputMethod", "set") == "set" and "_outputMethod" not in self._required
        is_everywhere = not any(name in self.tool.constants or name in self._required for name in _ELSEWHERE)
        if len(places) == 1 and is_plain and is_everywhere and not any(map(places[0].overlaps, elsewhere)):
            yield SlotResult(places[0], tuple(self._results()))

    def _meta(self, name: str) -> Iterator[tuple[str, Any]]:
        match name:
            case "_gather" | "_each":
                return
            case "_instance" | "_outputMethod" if name not in self._required:
                return
            case "_output" if self.gives_result is False:
                return
            case "_outputPath" if not self._is_choice(name) and len(self.listed_paths) < 2:
                return
            case "_scopes" if not any("enum" in part for part in self._applied(self._scopes)):
                return
        yield from super()._meta(name)

    def _results(self) -> Iterator[Schema]:
        """The schemas that a result has to fit: those of its tool, else of the function, and of the delegate."""
        runner, output = self.request.runner(self.tool), self.tool.output_schema
        if runner.executor is Executor.ACTIVITY and output is None and not self.tool.choices("_activity"):
            signature = (self.request.known.activities or {}).get(runner.name)
            output = Tool(runner.name, signature).output_schema if signature is not None else None
        if output is not None:
            yield output
        if runner.executor is Executor.DELEGATE and len(self.tool.choices("_delegate")) == 1:
            definition = self.request.submission.delegates.get(runner.name)
            schema = definition.get("schema") if definition is not None else None
            if isinstance(schema, dict | bool):
                yield schema

    @property
    def _lists(self) -> list[dict[str, Any]]:
        return []

    @property
    def _said_of_results(self) -> bool:
        return False not in self._said("_output")

    @property
    def _paths(self) -> list[Any]:
        return self._said("_outputPath")

    @cached_property
    def _admitted(self) -> CompiledSchema:
        """What the tool says of the place."""
        return compiled(excerpt({"allOf": [True, *self._paths]}, self._document))

    @property
    def _scopes(self) -> list[Any]:
        said = self._said("_scopes")
        return [*said, *(part["items"] for part in self._applied(said) if "items" in part)]

    def _offered(self, part: Any) -> Sequence[str]:
        """The references that fit a part of the tool's schema; what a gather call reads is of another type."""
        return () if "_gather" in self.tool.constants else self.places.fitting(part, self._document)

    @cached_property
    def _widening(self) -> Narrowing:
        return Narrowing(self.tool.name, self._document, self.definitions, offered=self._offered)


_OF_THE_TOOL: Final = ("_document", "_entry", "_parts", "_named", "_required", "_admitted", "listed_paths")
_ELSEWHERE: Final = ("_instance", "_gather")
"""What a call carries whose result not every instance has."""


def _references(path: str) -> list[Reference]:
    try:
        return list(parse_output_path(path).references)
    except ExpressionError:
        return []


def _is_free(place: Reference, reader: Fold) -> bool:
    """Whether nothing is there for a reader, and no schema speaks of it."""
    root, schema = reader.root(place.kind), reader.schema(place.kind)
    holds = root is not MISSING and (not isinstance(root, dict) or str(place.path[0]) in root)
    return not holds and (schema is MISSING or not parts_at(schema, place.path))
