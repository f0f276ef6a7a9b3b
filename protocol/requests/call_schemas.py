"""Call schemas: what a model may write as a call of one tool (SPEC R12.4).

A closed object; where the tool's schema is open, open for parameters, but not for meta-properties. Its properties stand
in the order in which a model does best to write them: what a call sees before what it is given, and where its result
goes last. A constant that the tool pins may be left out: it is filled in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from acts_celery.protocol.calls.approvals import ASK_HUMAN
from acts_celery.protocol.calls.call import names_of
from acts_celery.protocol.calls.tools import ALIASES, REASONING, WHO, Executor, Tool
from acts_celery.protocol.language.messages import EVERYWHERE
from acts_celery.protocol.schemas import CompiledSchema, compiled, conjuncts, excerpt
from acts_celery.protocol.schemas.calls import call_schema, speaks_of_meta_properties
from acts_celery.protocol.schemas.parts import admits_name
from acts_celery.protocol.schemas.walk import applied
from acts_celery.protocol.state.operations import Method

from .request import Request
from .widening import Definitions, Widening, joined, untitled

_SHOWN_IN_ORDER: Final = ("_instance", "_gather", "_each", "_delegate", "_activity", "_scopes")
"""The meta-properties that stand before the parameters, behind `_tool` and `_reasoningForCall`."""
_BEHIND: Final = ("_output", "_outputPath", "_outputMethod")
"""Those that stand behind them."""
_OWN: Final = frozenset({"_tool", REASONING, *_SHOWN_IN_ORDER, *_BEHIND, *ALIASES})
_WITHOUT_EACH: Final = {"not": {"required": ["_each"]}}
_OF_OTHERS: Final = ("additionalProperties", "unevaluatedProperties")
"""Keywords that speak of the parameters that a tool does not name."""
_AS_A_WHOLE: Final = ("anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependentRequired")
"""Keywords that speak of a call as a whole, and go on doing so."""


def compose_call(request: Request, tool: Tool, definitions: Definitions) -> dict[str, Any]:
    """The schema of a tool's calls; what its references lead to is added to the definitions."""
    return CallComposing(request, tool, definitions).composed()


@dataclass(frozen=True)
class CallComposing:
    """Composes the call schema of one tool."""

    request: Request
    tool: Tool
    definitions: Definitions

    def composed(self) -> dict[str, Any]:
        """The whole schema."""
        shown = dict(self._properties())
        required = [name for name in shown if name in self._required]
        schema: dict[str, Any] = {"type": "object"}
        if self.tool.description is not None:
            schema["description"] = self.tool.description
        schema |= {"properties": shown, "required": required, "additionalProperties": self._others}
        if self._others is not False:
            own = [name for name in shown if name.startswith("_")]
            schema["propertyNames"] = {"anyOf": [{"pattern": "^(?!_)"}, {"enum": own}]}
        if patterns := dict(self._patterns()):
            schema["patternProperties"] = patterns
        conditions = list(self._conditions())
        if {"_instance", "_gather"} <= shown.keys():
            conditions.append({"not": {"required": ["_instance", "_gather"]}})
        if lists := self._lists:
            conditions.append(lists[0] if "_each" in self.tool.constants else {"anyOf": [_WITHOUT_EACH, *lists]})
            conditions += [{"not": {"required": ["_gather", "_each"]}}] if {"_gather", "_each"} <= shown.keys() else []
        if len(conditions) == 1 and not conditions[0].keys() & schema.keys():
            return {**schema, **conditions[0]}
        return {**schema, "allOf": conditions} if conditions else schema

    def _properties(self) -> Iterator[tuple[str, Any]]:
        """What a model is shown, in order."""
        yield "_tool", {"const": self.tool.name}
        yield REASONING, {"type": "string"}
        for name in _SHOWN_IN_ORDER:
            yield from self._meta(name)
        for name in self._named:
            if not name.startswith("_"):
                yield name, self._widening.value(joined(self._said(name)))
        for name in self._named:
            if name.startswith("_") and name not in _OWN:
                yield name, self._widening.data(joined(self._said(name)))
        for name in _BEHIND:
            yield from self._meta(name)

    def _meta(self, name: str) -> Iterator[tuple[str, Any]]:
        """A meta-property, where a model may give it."""
        said = self._said(name)
        if False in said:
            return
        if name in self.tool.constants and not self._is_granted(name) and not self._is_choice(name):
            if name not in WHO:
                yield name, {"const": self.tool.constants[name]}
            return
        match name:
            case "_instance" if self.request.instances:
                yield name, self._instance_schema()
            case "_gather" if self.request.instances and not self.tool.constants.get("_instance"):
                yield name, {"const": True}
            case "_each" if self._lists:
                yield name, {"enum": list(self._choices_of_lists)}
            case "_delegate" | "_activity":
                if allowed := list(filter(self._is_allowed, self.tool.choices(name))):
                    yield name, {"enum": allowed}
            case "_scopes" if said:
                yield name, self._without_refused_scopes(self._widening.data(joined(said)))
            case "_output" if self._is_latent and not self.request.is_lazy:
                yield name, self._widening.data(joined(said))
            case "_outputPath" if self._is_choice(name):
                yield name, {"enum": list(self.tool.pinned_places)}
            case "_outputPath":
                yield name, self._widening.data(joined(said)) if said else self.definitions.reference()
            case "_outputMethod":
                yield name, self._widening.data(joined(said)) if said else {"enum": list(map(str, Method))}

    @cached_property
    def _choices_of_lists(self) -> tuple[str | list[str], ...]:
        """The parameters for each of whose elements a call may be carried out (SPEC R4.10)."""
        if self._is_latent or self.request.runner(self.tool).name == ASK_HUMAN:
            return ()
        given = [name for name in self._named if not name.startswith("_")]
        return tuple(one for one in self.tool.lists if all(name in given for name in names_of(one)))

    @cached_property
    def _lists(self) -> list[dict[str, Any]]:
        """What holds of a call for each of these choices: a reference stands there."""
        reference = self.definitions.reference
        return [
            {
                "properties": {"_each": {"const": one}, **{name: reference() for name in names_of(one)}},
                "required": list(names_of(one)),
            }
            for one in self._choices_of_lists
        ]

    @cached_property
    def _required(self) -> frozenset[str]:
        """The properties that a call must have, as far as they are shown."""
        asked = {name for part in self._parts for name in part.get("required", ())} | {"_tool"}
        asked |= {ALIASES[name] for name in asked & ALIASES.keys()}
        asked -= {"_output", *self.tool.constants}
        said = self._said("_outputPath")
        if self.tool.output_schema not in (None, True) and not any(map(self._admits_null, said)):
            asked |= {"_outputPath"} - self.tool.constants.keys()
        return frozenset(asked)

    @cached_property
    def _is_latent(self) -> bool:
        """Whether a model gives the result: no code is registered, and none can be chosen (SPEC R4.2)."""
        choosing = any(self.tool.choices(name) for name in ("_delegate", "_activity"))
        return not choosing and self.request.runner(self.tool).executor is Executor.LATENT

    def _without_refused_scopes(self, schema: Any) -> Any:
        """What is said of scopes, without those that the code refuses: a declaration never widens (SPEC R4.2)."""
        items = schema.get("items") if isinstance(schema, dict) else None
        behind = list(self.request.toolbox.behind(self.tool, self.request.runner(self.tool)))
        if not behind or not isinstance(items, dict) or "enum" not in items:
            return schema
        kept = [scope for scope in items["enum"] if not any(_refuses(tool, scope) for tool in behind)]
        return {**schema, "items": {**items, "enum": kept}} if kept else {**schema, "maxItems": 0}

    def _is_choice(self, name: str) -> bool:
        """Whether it is the place of a latent call that its tool pins to one of several: the model chooses."""
        is_open = name == "_outputPath" and self._is_latent and not self.request.is_lazy
        return is_open and bool(self.tool.pinned_places)

    def _is_granted(self, name: str) -> bool:
        """Whether a call that omits a meta-property is given it, and may as well have another value (SPEC R4.1a)."""
        return not any("const" in part for part in self._applied(self._said(name)))

    def _is_allowed(self, code: Any) -> bool:
        """Whether a choice of code is allowed (SPEC R4.2a)."""
        return self.request.toolbox.allow is None or code in self.request.toolbox.allow

    @property
    def _instances(self) -> list[str]:
        """What `_instance` may be; what runs in all of them anyway does not say so."""
        return [*self.request.instances, *([] if self.request.is_lazy else [EVERYWHERE])]

    def _instance_schema(self) -> dict[str, Any]:
        """The instances of the context, as far as the tool admits them."""
        said = self._said("_instance")
        if said:
            admitted = compiled(excerpt({"allOf": said}, self._document))
            return {"enum": [name for name in self._instances if not admitted.problems(name)]}
        self.definitions.schemas.setdefault("instance", {"enum": self._instances})
        return {"$ref": "#/$defs/instance"}

    def _patterns(self) -> Iterator[tuple[str, Any]]:
        """What is said of parameters by patterns of their names."""
        for part in self._parts:
            for pattern, below in part.get("patternProperties", {}).items():
                if pattern != "^_" and not speaks_of_meta_properties(pattern):
                    yield pattern, self._widening.value(below)

    @cached_property
    def _others(self) -> Any:
        """What parameters may be that the tool does not name; False where it takes none."""
        said = said_of_others(self._parts, self._named)
        return self._widening.value(joined(said)) if said else False

    def _conditions(self) -> Iterator[dict[str, Any]]:
        """What is said of a call as a whole."""
        for part in self._parts:
            if any(keyword in part for keyword in _AS_A_WHOLE):
                said = {keyword: part[keyword] for keyword in _AS_A_WHOLE if keyword in part}
                # Each of these is one schema applied to all of the call, whose places always hold references.
                exactly = [{"oneOf": list(map(self._widening.inside, said.pop("oneOf")))}] if "oneOf" in said else []
                yield from ([self._widening.inside(said)] if said else [])
                yield from exactly

    def _said(self, name: str) -> list[Any]:
        """What is said of a property whatever the call is, by its names."""
        names = (name, *(alias for alias, newer in ALIASES.items() if newer == name))
        named = (untitled(part.get("properties", {})) for part in self._parts)
        return [properties[each] for properties in named for each in names if each in properties]

    def _admits_null(self, said: Any) -> bool:
        return said is False or not compiled(excerpt({"allOf": [said]}, self._document)).problems(None)

    def _applied(self, said: list[Any]) -> list[dict[str, Any]]:
        return applied(said, self._document)

    @cached_property
    def _named(self) -> tuple[str, ...]:
        """The properties that the tool's schema names, wherever it is applied to a call as a whole, in order: first
        those that it describes.
        """
        parts = [*self._parts, *applied((self._entry,), self._document)]
        described = [name for part in parts for name in part.get("properties", ()) if admits_name(self._parts, name)]
        demanded = [name for part in parts for name in part.get("required", ())]
        demanded += [name for part in parts for names in part.get("dependentRequired", {}).values() for name in names]
        return tuple(dict.fromkeys([*described, *demanded]))

    @cached_property
    def _parts(self) -> list[dict[str, Any]]:
        """The schemas that are applied to every call."""
        return conjuncts((self._entry,), self._document)

    @cached_property
    def _document(self) -> dict[str, Any]:
        """The tool's schema as it speaks of calls (see `schemas.calls`), its properties in the order in which
        they are declared.
        """
        assert isinstance(self._calls.document, dict)
        return self._calls.document

    @cached_property
    def _entry(self) -> Any:
        return self._calls.applied

    @cached_property
    def _calls(self) -> CompiledSchema:
        return call_schema(CompiledSchema(self.tool.document), {})

    @cached_property
    def _widening(self) -> Widening:
        return Widening(self.tool.name, self._document, self.definitions)


def said_of_others(parts: Sequence[Mapping[str, Any]], named: Iterable[str]) -> list[Any]:
    """What a tool says of parameters that it does not name; nothing where it takes none. One that asks for more
    parameters than it names takes any.
    """
    said = [part[keyword] for part in parts for keyword in _OF_OTHERS if keyword in part]
    if False in said:
        return []
    if any("unevaluatedProperties" in part for part in parts):
        return [True]  # validation alone knows which parameters that speaks of
    if not said and not any("patternProperties" in part for part in parts):
        least = max((part.get("minProperties", 0) for part in parts), default=0)
        return [True] if least > sum(not name.startswith("_") for name in named) else []
    return [each for each in said if each is not True] or said[:1]


def _refuses(tool: Tool, scope: Any) -> bool:
    """Whether a tool admits no call with a scope."""
    return any(problem.pointer.startswith("/_scopes") for problem in tool.problems({"_scopes": [scope]}, lenient=True))
