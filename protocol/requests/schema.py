"""Composition: the one schema of everything that a model may answer (SPEC R12.3).

Its properties are in the order in which a model writes: advice comes before what it is about.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

from .. import limits
from ..calls import meta_properties as metas
from ..calls.call import ASK_HUMAN
from ..calls.declarations import Declared, Toolbox
from ..calls.tools import Executor, Runner, Tool
from ..calls.trust import ToolTrust
from ..errors import Problem, Rejected, pointer
from ..messages import EVERYWHERE, Message
from ..plan.checking import Environment, asked_of, check_calls, reach_of, toolbox_of
from ..plan.config import Advisor, Meta, advisors_of, meta_of
from ..plan.submission import Submission, read_submission, shaped
from ..schemas import CompiledSchema, compiled, conjuncts, excerpt
from ..schemas.walk import IN_PLACE, admits_name, applied, normalized
from ..trust import shows_untrusted
from .data_blocks import Budget, UntrustedPlaces
from .widening import Definitions, Widening, closed, joined, untitled

# A request: what a model is asked, and what its answer is held against (SPEC R12.1, R12.2).

Explain = Callable[[Rejected], Iterable[Problem]]


def as_they_are(rejected: Rejected) -> Iterable[Problem]:
    """Give the problems of a rejection without remedies."""
    return rejected.errors


@dataclass(frozen=True, eq=False)
class Request:
    """A request for the loop, or a delegate's definition read as one, in its environment.

    It stays the same in every tick of a run, so what is composed from it is the same bytes each time (SPEC R12.3). Its
    context is the one it was submitted with; what the run has added since is passed separately.
    """

    submission: Submission
    known: Environment
    explain: Explain = as_they_are
    """Adds remedies to the problems of an answer; that needs more than is known here."""
    is_native: bool = False
    """Whether its tools go as functions of the provider's own tool calling (SPEC R12.6)."""
    has_texts: bool = False
    """Whether its model may be held to a schema with texts in place of what it cannot express (see `worker.agent`)."""
    sends_nulls: bool = False
    """Whether its model may have to write null for each property that it leaves out."""
    is_child: bool = False
    """Whether the request is a delegate's: the top-level names of its input then come from the parent, as the
    delegate's parameters do.
    """

    @property
    def schema(self) -> Any:
        """The schema of the output; null in an answer means "not yet", whether or not it admits null."""
        return self.submission.schema

    @property
    def config(self) -> Mapping[str, Any]:
        """The request's `config`."""
        return self.submission.config

    @property
    def instances(self) -> tuple[str, ...]:
        """The instances of its context, a set that is fixed at submission (SPEC R12.4)."""
        return self.submission.instances

    @cached_property
    def is_lazy(self) -> bool:
        """Whether the model only plans (SPEC R13.7): calls that name no instance run once in each."""
        return self.submission.is_lazy

    @property
    def may_say_null(self) -> bool:
        """Whether a call says by an `_outputPath` of null that its result goes nowhere (SPEC R12.4)."""
        return self.is_native and not self.sends_nulls

    @cached_property
    def model_trust(self) -> ToolTrust:
        """Trust of everything that the model can call, and of its context (SPEC R16.3)."""
        return asked_of(self.submission, self.known)

    @cached_property
    def effectful(self) -> frozenset[str]:
        """Tools whose calls change something outside, by their own trust and the trust of the code behind them."""
        reach, tools = reach_of(self.submission.delegates, self.known), dict(self.submission.tools)
        return frozenset(name for name in self.tools if reach.of_tools(Declared(tools, {name: ()})).effects)

    @cached_property
    def hides_untrusted(self) -> bool:
        """Whether untrusted data is hidden from the model: it can call what has effects (SPEC R16.3)."""
        return self.model_trust.effects and not shows_untrusted(self.config)

    @property
    def shows_no_values(self) -> bool:
        """Whether its model is shown data by path, schema and size alone (SPEC R12.5)."""
        return self.config.get("show") == "schema"

    def budget(self, messages: Sequence[Message]) -> Budget:
        """Budget for the data in one message, given the messages of the log (SPEC R16.3)."""
        most = self.config.get("show_bytes"), self.known.limits.call_bytes
        hidden = UntrustedPlaces(messages, hides_names=not self.is_child) if self.hides_untrusted else None
        return Budget(*most, hidden=hidden, by_schema=self.shows_no_values)

    @cached_property
    def may_be_text(self) -> bool:
        """Whether the output may be a text."""
        document = normalized(self.schema)
        return Widening("output", document, Definitions()).may_be_text(document)

    @cached_property
    def tools(self) -> Mapping[str, Tool]:
        """Tools that the model is shown and may call: exactly those that the request declares, in that order, as far as
        they are allowed (SPEC R4.2a, R12.2). A bare name has the schema of the activity that is registered under it.
        """
        named = {name: self.toolbox.tool(name) or Tool(name, {}) for name in self.submission.declared}
        return {name: tool for name, tool in named.items() if not any(self.toolbox.refusals(name, self.runner(tool)))}

    @cached_property
    def toolbox(self) -> Toolbox:
        """Toolbox with everything that calls may name."""
        return toolbox_of(self.submission, self.known)

    def runner(self, tool: Tool) -> Runner:
        """Who runs the calls of a tool that choose no code of their own (SPEC R4.2). Raises `UnknownRunner`."""
        return self.toolbox.runner(tool.name, tool.constants.get("_delegate"), tool.constants.get("_activity"))


def read_request(value: Any, known: Environment) -> Request:
    """The request that a submission would be without its solution: what a model is asked, before anything runs. One
    without a schema has no output but null. Raises `Rejected` with every structural error.
    """
    document, shape = shaped(value)
    try:
        if not isinstance(document, dict):
            read_submission(document, known.limits)  # raises
        schema = document.get("schema")
        asked = {**document, "schema": False if schema is None else schema, "solution": None}
        submission, problems = read_submission(asked, known.limits)
        check_calls(submission, problems, known)
    except Rejected as rejected:
        raise shape.rejected(rejected.errors) from None
    return Request(submission, known)


# Advice: what a model writes before its calls where the context asks for it, `meta` and `advisors` (SPEC R15).
#
# Nothing of it is executed; it is kept in the solution.

_ADVISOR_KEYS: Final = ("id", "thought", "calls")
"""Properties of every advice, besides those of its advisor's schema."""


def compose_advice(request: Request, definitions: Definitions) -> Iterator[tuple[str, Any]]:
    """The properties that a model writes before its calls, in order, with their schemas (SPEC R12.3)."""
    if (meta := meta_of(request.submission.context)) is not None:
        yield "meta", _meta_schema(meta)
    if advisors := advisors_of(request.submission.context):
        items = [_advice(advisor, definitions) for advisor in advisors]
        yield "advisors", {"type": "array", "items": {"anyOf": items}, "minItems": len(items), "maxItems": len(items)}


def judge_advice(request: Request, answer: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems of an answer's advice that no schema can express."""
    if "meta" in answer:
        yield from _judge_meta(request, answer["meta"])
    if "advisors" in answer:
        yield from _judge_advisors(request, answer["advisors"])


def advice_findings(request: Request, answer: Mapping[str, Any]) -> Iterator[str]:
    """Ratings of an advisor that cannot be read: no error, for nothing depends on them (SPEC R15.1)."""
    listed = answer.get("advisors")
    for advice in listed if isinstance(listed, list) else ():
        if isinstance(advice, dict) and "calls" in advice and not _are_ratings(advice["calls"]):
            most = limits.SCHEMA_MOST
            yield f"the calls of advisor {advice.get('id')!r} are not JSON of tool to a number from 0 to {most}"


def _are_ratings(text: Any) -> bool:
    try:
        ratings = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return False
    return isinstance(ratings, dict) and all(
        isinstance(rate, int | float) and not isinstance(rate, bool) and 0 <= rate <= limits.SCHEMA_MOST
        for rate in ratings.values()
    )


def _meta_schema(meta: Meta) -> dict[str, Any]:
    """The schema of a newer version of a meta message: the same properties, with another version."""
    properties = {key: {"const": value} if key == "path" else {} for key, value in meta.value.items()}
    properties["version"] = {"type": "string", "description": f"a version greater than {meta.version}"}
    required = [key for key in properties if key in ("path", "version")]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _judge_meta(request: Request, value: Any) -> Iterator[Problem]:
    meta = meta_of(request.submission.context)
    version = value.get("version") if isinstance(value, dict) else None
    if meta is not None and isinstance(version, str) and not meta.is_newer(version):
        text = f"{version!r} is not greater than {meta.version!r}"
        yield Problem(pointer("solution", "meta", "version"), text)


def _advice(advisor: Advisor, definitions: Definitions) -> dict[str, Any]:
    """Schema of one advisor's advice: data, in which nothing is a reference."""
    document = normalized(advisor.schema)
    writing = Widening(f"advisor.{advisor.id}", document, definitions)
    parts = conjuncts((document,), document)
    own = {key: writing.data(below) for part in parts for key, below in part.get("properties", {}).items()}
    properties = {
        "id": {"const": advisor.id},
        "thought": {"type": "string"},
        **{key: schema for key, schema in own.items() if key not in _ADVISOR_KEYS},
        "calls": {"type": "string", "description": f'JSON of tool to 0-{limits.SCHEMA_MOST}, such as {{"price": 80}}'},
    }
    required = {name for part in parts for name in part.get("required", ())} | {*_ADVISOR_KEYS}
    return {
        "type": "object",
        **({"description": advisor.role} if advisor.role is not None else {}),
        "properties": properties,
        "required": [name for name in properties if name in required],
        "additionalProperties": False,
    }


def _judge_advisors(request: Request, value: Any) -> Iterator[Problem]:
    named = [advice.get("id") for advice in value if isinstance(advice, dict)] if isinstance(value, list) else []
    for advisor in advisors_of(request.submission.context):
        if named.count(advisor.id) != 1:
            text = f"advisor {advisor.id!r} is asked once, and advises {named.count(advisor.id)} times"
            yield Problem(pointer("solution", "advisors"), text)


# Call schemas: what a model may write as a call of one tool (SPEC R12.4).
#
# A closed object; if the tool's schema is open, it is open for parameters, but not for meta-properties. Its properties
# are in the order in which a model does best to write them: what a call sees before what it is given, and where its
# result goes last. A constant that the tool pins may be left out: it is filled in.

_IN_ORDER: Final = sorted(
    (one for one in metas.META_PROPERTIES if one.role < metas.Role.LABELS), key=lambda one: one.role
)
_OWN: Final = frozenset({*(one.name for one in _IN_ORDER), *metas.ALIASES})
_WITHOUT_EACH: Final = {"not": {"required": ["_each"]}}
_OF_LISTED: Final = frozenset({"enum", "type", "description", "title"})
"""Keywords beside which more paths may be listed."""
_OF_OTHERS: Final = ("additionalProperties", "unevaluatedProperties")
"""Keywords that speak of the parameters that a tool does not name."""


@dataclass(frozen=True)
class _CallSchema:
    """Composes the schema of a tool's calls; what its references lead to is added to the definitions."""

    request: Request
    tool: Tool
    definitions: Definitions
    is_offer: bool = True
    """True for the schema that a model is offered; the one that answers are held to leaves to the rules of submissions
    what values may decide.
    """

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
        for one in _IN_ORDER:
            conditions += self._of_lists() if one.name == "_each" else []
            if one.excludes and {one.excludes, one.name} <= shown.keys():
                conditions.append({"not": {"required": [one.excludes, one.name]}})
        if len(conditions) == 1 and not conditions[0].keys() & schema.keys():
            return {**schema, **conditions[0]}
        return {**schema, "allOf": conditions} if conditions else schema

    def _properties(self) -> Iterator[tuple[str, Any]]:
        """Properties of a call, in order, with their schemas."""
        for one in _IN_ORDER:
            if one.role < metas.Role.RESULT:
                yield from self._meta(one)
        inside = self.tool.inputs.inside
        for name in self._named:
            if not name.startswith("_") and name not in inside.texts:
                said = joined(self._schemas_for(name))
                if name in inside.deeper:
                    said = self.tool.inputs.offered(said, inside.deeper[name])
                yield name, self._widening.value(said)
        for name in self._named:
            if name.startswith("_") and name not in _OWN:
                yield name, self._widening.data(joined(self._schemas_for(name)))
        for one in _IN_ORDER:
            if one.role >= metas.Role.RESULT:
                yield from self._meta(one)

    def _meta(self, one: metas.MetaProperty) -> Iterator[tuple[str, Any]]:
        """A meta-property, where a model may give it."""
        name = one.name
        if one.role in (metas.Role.TOOL, metas.Role.RECORD):
            yield name, {"const": self.tool.name} if one.role is metas.Role.TOOL else {"type": "string"}
            return
        said = self._schemas_for(name)
        if False in said:
            return
        is_choice = name == "_outputPath" and bool(self.places)
        if name in self.tool.constants and not self._is_granted(name) and not is_choice:
            if name not in metas.WHO:
                yield name, {"const": self.tool.constants[name]}
            return
        schema = one.offered(self, said) if one.offered is not None else None
        if schema is not None:
            yield name, schema

    # What the rows of the table ask, see `Offer`.

    @cached_property
    def has_instances(self) -> bool:
        """Whether the context has instances."""
        return bool(self.request.instances)

    @cached_property
    def gathers(self) -> bool:
        """Whether a call may read in every instance."""
        return self.has_instances and not self.tool.constants.get("_instance")

    @cached_property
    def lists(self) -> tuple[str | list[str], ...]:
        """Parameters for each of whose elements a call may run (SPEC R4.10)."""
        if self._is_latent or self.request.runner(self.tool).name == ASK_HUMAN:
            return ()
        given = [name for name in self._named if not name.startswith("_")]
        return tuple(one for one in self.tool.lists if all(name in given for name in metas.names_of(one)))

    @cached_property
    def places(self) -> tuple[str, ...]:
        """The pinned places of a latent call among which the model chooses."""
        return self.tool.pinned_places if self.takes_result else ()

    @cached_property
    def takes_result(self) -> bool:
        """Whether a model gives the result in the call (SPEC R12.4)."""
        return self._is_latent and not self.request.is_lazy

    def data(self, said: Sequence[Any]) -> Any:
        """Schema of a property that holds no references, by the tool."""
        return self._widening.data(joined(said))

    def reference(self) -> Any:
        """The schema of any reference."""
        return self.definitions.reference()

    def code(self, name: str) -> list[str]:
        """The delegates or activities that may be chosen (SPEC R4.2a)."""
        allow = self.request.toolbox.allow
        return [code for code in self.tool.choices(name) if allow is None or code in allow]

    def _of_lists(self) -> list[dict[str, Any]]:
        """Conditions for each choice of lists: the listed parameters are references."""
        given = self.tool.inputs.inside.texts
        named = [(one, [name for name in metas.names_of(one) if name not in given]) for one in self.lists]
        lists = [
            {"properties": {"_each": {"const": one}, **{name: self.reference() for name in names}}, "required": names}
            for one, names in named
        ]
        if not lists:
            return []
        return [lists[0] if "_each" in self.tool.constants else {"anyOf": [_WITHOUT_EACH, *lists]}]

    @cached_property
    def _required(self) -> frozenset[str]:
        """The properties that a call must have, as far as they are shown."""
        asked = {name for part in self._parts for name in part.get("required", ())} | {"_tool"}
        asked |= {metas.ALIASES[name] for name in asked & metas.ALIASES.keys()}
        return frozenset(asked - {metas.RESULT, *self.tool.constants, *self.tool.inputs.inside.given})

    @cached_property
    def _is_latent(self) -> bool:
        """Whether a model gives the result: no code is registered, and none can be chosen (SPEC R4.2)."""
        choosing = any(self.tool.choices(name) for name in ("_delegate", "_activity"))
        return not choosing and self.request.runner(self.tool).executor is Executor.LATENT

    def path(self, said: Sequence[Any]) -> Any:
        """Schema of an output path by the tool: where it lists places for a tool with code, all of them together as
        well, among which the code then chooses (SPEC R4.1).
        """
        schema = self.data(said)
        listed = schema.get("enum", ()) if isinstance(schema, dict) and not self._is_latent else ()
        whole = " || ".join(map(str, listed))
        if len(listed) < 2 or not schema.keys() <= _OF_LISTED or _refuses_path(self.tool, whole):
            return schema
        return {**schema, "enum": [*listed, whole]}

    def scopes(self, said: Sequence[Any]) -> Any:
        """Schema of scopes, without those that the code refuses: a declaration never widens (SPEC R4.2)."""
        schema = self.data(said)
        items = schema.get("items") if isinstance(schema, dict) else None
        behind = list(self.request.toolbox.behind(self.tool, self.request.runner(self.tool)))
        if not behind or not isinstance(items, dict) or "enum" not in items:
            return schema
        kept = [scope for scope in items["enum"] if not any(_refuses(tool, scope) for tool in behind)]
        return {**schema, "items": {**items, "enum": kept}} if kept else {**schema, "maxItems": 0}

    def instance(self, said: Sequence[Any]) -> Any:
        """Schema of instances: those of the context that the tool admits, and all. A call that runs in all of them
        anyway does not say so.
        """
        instances = [*self.request.instances, *([] if self.request.is_lazy else [EVERYWHERE])]
        if said:
            admitted = compiled(excerpt({"allOf": said}, self._document))
            return {"enum": [name for name in instances if not admitted.problems(name)]}
        self.definitions.schemas.setdefault("instance", {"enum": instances})
        return {"$ref": "#/$defs/instance"}

    def _is_granted(self, name: str) -> bool:
        """Whether a call that omits a meta-property is given it, and may as well have another value (SPEC R4.1a)."""
        return not any("const" in part for part in applied(self._schemas_for(name), self._document))

    def _patterns(self) -> Iterator[tuple[str, Any]]:
        """Schemas of parameters by patterns for their names."""
        for part in self._parts:
            for pattern, below in part.get("patternProperties", {}).items():
                if pattern != "^_" and not metas.speaks_of_meta_properties(pattern):
                    yield pattern, self._widening.value(below)

    @cached_property
    def _others(self) -> Any:
        """Schema of the parameters that the tool does not name; False if it takes none."""
        said = said_of_others(self._parts, self._named)
        return self._widening.value(joined(said)) if said else False

    def _conditions(self) -> Iterator[dict[str, Any]]:
        """Schemas that apply to a call as a whole, and go on doing so."""
        inputs = self.tool.inputs
        for part in self._parts:
            said = inputs.conditions(part, inputs.inside)
            if said and (self.is_offer or all(map(_is_of_names, applied((said,), self._document)))):
                # Each of these is one schema applied to all of the call, whose places always hold references.
                exactly = [{"oneOf": list(map(self._widening.inside, said.pop("oneOf")))}] if "oneOf" in said else []
                yield from ([self._widening.inside(said)] if said else [])
                yield from exactly

    def _schemas_for(self, name: str) -> list[Any]:
        """Schemas of a property of every call, under its current and older name."""
        names = metas.spellings(name)
        named = (untitled(part.get("properties", {})) for part in self._parts)
        return [properties[each] for properties in named for each in names if each in properties]

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
        """The tool's schema as it speaks of calls (see `call_schema`), its properties in the order in which
        they are declared.
        """
        assert isinstance(self._calls.document, dict)
        return self._calls.document

    @cached_property
    def _entry(self) -> Any:
        return self._calls.applied

    @cached_property
    def _calls(self) -> CompiledSchema:
        return metas.call_schema(CompiledSchema(self.tool.document), {})

    @cached_property
    def _widening(self) -> Widening:
        return Widening(self.tool.name, self._document, self.definitions, self.is_offer)


def said_of_others(parts: Sequence[Mapping[str, Any]], named: Iterable[str]) -> list[Any]:
    """Schemas of the parameters that a tool does not name; none if it takes no others. A tool that requires more
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


def _is_of_names(part: Mapping[str, Any]) -> bool:
    """Whether a schema asks which parameters there are, and nothing of their values."""
    return part.keys() <= {*IN_PLACE, "required", "dependentRequired"}


def _refuses(tool: Tool, scope: Any) -> bool:
    """Whether a tool admits no call with a scope."""
    return any(problem.pointer.startswith("/_scopes") for problem in tool.problems({"_scopes": [scope]}, lenient=True))


def _refuses_path(tool: Tool, path: str) -> bool:
    """Whether an output path is invalid, or a tool admits no call with it."""
    properties = {"_outputPath": path}
    found = [*metas.meta_problems(properties), *tool.problems(properties, lenient=True)]
    return any(problem.pointer.startswith("/_outputPath") for problem in found)


@lru_cache(maxsize=64)
def compose(request: Request) -> dict[str, Any]:
    """Compose the schema of an answer: a closed object of `calls` and `output`, all of it required. It depends on the
    request alone, so it is the same in every tick, and made once.
    """
    return _composed(request, is_offer=True)


@lru_cache(maxsize=16)
def compose_leniently(request: Request) -> dict[str, Any]:
    """Compose the schema of an answer without all that the value behind a reference may decide: that is left to the
    rules of submissions (SPEC R12.4).
    """
    return _composed(request, is_offer=False)


def _composed(request: Request, *, is_offer: bool) -> dict[str, Any]:
    definitions = Definitions()
    properties = dict(compose_advice(request, definitions))
    calls = [_CallSchema(request, tool, definitions, is_offer).composed() for tool in request.tools.values()]
    properties["calls"] = {"type": "array", "items": {"anyOf": calls}} if calls else {"type": "array", "maxItems": 0}
    properties["output"] = _output(request, definitions)
    return closed(properties, definitions)


def properties_of_calls(schema: Mapping[str, Any]) -> frozenset[str]:
    """The properties that calls of any tool may have, by a composed schema."""
    calls = schema["properties"]["calls"].get("items", {}).get("anyOf", ())
    return frozenset(name for call in calls for name in call["properties"])


def _output(request: Request, definitions: Definitions) -> dict[str, Any]:
    """Schema of the output: the request's, with references in place of values (SPEC R4.9), or null for not yet."""
    if request.schema is False:  # there is none: see `read_request`
        return {"type": "null"}
    document = normalized(request.schema)
    schema = Widening("output", document, definitions).value(document)
    branches = schema["anyOf"] if isinstance(schema, dict) and schema.keys() == {"anyOf"} else [schema]
    return {"anyOf": [*branches, *([] if {"type": "null"} in branches else [{"type": "null"}])]}
