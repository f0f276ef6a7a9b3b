"""Declarations: tools and delegates that a document declares, and what is wrong with them (SPEC R4.1, R9, R12.2)."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from itertools import count
from typing import Any, Final

from .. import limits
from ..errors import Cause, Problem, Rejected, UnknownName, listed, pointer, segments, shortened
from ..limits import CONTROL, has_control_characters
from ..messages import TRUST, Message, is_promise, read_data, render_data, shown
from ..paths import MISSING
from ..references import Path
from ..schemas import SchemaError, compiled, conjuncts, excerpt
from ..schemas.algebra import Algebra, described
from ..schemas.costs import EXCEEDED
from ..schemas.validation import holds_expression
from ..schemas.walk import admits_name, all_of, properties_in, reference_to
from ..state.context import Context
from ..state.labels import Labels, marks_of
from .call import Call
from .meta_properties import RESULT, WHO, misspelt_problems
from .tools import ANONYMOUS, GRANTED, ONCE, RESOURCE, Executor, Runner, Tool
from .trust import trust_problems


@dataclass(frozen=True, slots=True)
class NoSchema(Cause):
    """A tool's declaration is not a JSON Schema."""

    declaration: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Declared:
    """Tools that a document declares; of several declarations of one name only the last counts."""

    tools: dict[str, Tool] = field(default_factory=dict)
    """Tools that are declared with a schema, by name."""
    places: dict[str, Path] = field(default_factory=dict)
    """Where each tool is declared, in order. A name that is not in `tools` is bare: it has the schema of the activity
    that is registered under it (SPEC R12.2).
    """


def read_tools(context: Any, shorthand: Any) -> tuple[Declared, list[Problem]]:
    """Tools that are declared by the messages of a context and by its shorthand: an object of name to schema, or a list
    of names and such objects.
    """
    declared = Declared()
    problems: list[Problem] = []
    sources: list[tuple[tuple[str | int, ...], Any]] = [
        (("context", index, "tool"), message.get("tool"))
        for index, message in enumerate(context)
        if isinstance(message, dict) and message.get("type") == "tool"
    ]
    if shorthand is not None:
        sources.append((("tools",), shorthand))
    for at, declarations in sources:
        if declarations is None:
            problems.append(Problem(pointer(*at[:-1]), 'a tool message needs "tool": tool name to JSON Schema'))
            continue
        if not isinstance(declarations, (dict, list)):
            problems.append(Problem(pointer(*at), "must be an object of tool name to JSON Schema, or a list of names"))
            continue
        listed = enumerate(declarations) if isinstance(declarations, list) else [(None, declarations)]
        for index, item in listed:
            problems += _declare(item, declared, *at, *(() if index is None else (index,)))
    return declared, problems


def _declare(item: Any, declared: Declared, *at: str | int) -> Iterator[Problem]:
    """Take in a bare name, or an object of tool name to JSON Schema."""
    if isinstance(item, str) and item:
        declared.tools.pop(item, None)
        declared.places[item] = at
    elif not isinstance(item, dict):
        yield Problem(pointer(*at), "must be the name of a tool, or an object of tool name to JSON Schema")
    else:
        for name, declaration in item.items():
            if not name:
                yield Problem(pointer(*at, name), "a tool needs a name")
            if has_control_characters(name):
                yield Problem(pointer(*at, name), CONTROL)
            tool = Tool(name, declaration)
            problem = _declaration_problem(tool, *at, name)
            if problem is not None:
                yield problem
                tool = Tool(name, {key: {} for key in WHO})  # so that nothing is said against its calls as well
            declared.tools[name] = tool
            declared.places[name] = (*at, name)


def _declaration_problem(tool: Tool, *at: str | int) -> Problem | None:
    declaration: Any = tool.declaration
    if not isinstance(declaration, dict):
        return Problem(pointer(*at), "a tool must be a JSON Schema object")
    if not isinstance(declaration.get("properties", {}), dict):
        return Problem(pointer(*at, "properties"), "must be an object")
    required = declaration.get("required", [])
    if not isinstance(required, list) or not all(isinstance(key, str) for key in required):
        return Problem(pointer(*at, "required"), "must be a list of strings")
    if TRUST in declaration and (problem := next(trust_problems(declaration[TRUST], *at, TRUST), None)) is not None:
        return problem
    if RESOURCE in declaration and not (isinstance(declaration[RESOURCE], str) and declaration[RESOURCE]):
        return Problem(pointer(*at, RESOURCE), 'must be the name of a server or another resource, such as "crm"')
    if not isinstance(declaration.get(ONCE, False), bool):
        return Problem(pointer(*at, ONCE), "must be true or false")
    try:
        _ = tool.compiled
    except SchemaError as error:
        place = tool.place_in_declaration(error.path)
        return Problem(pointer(*at, *place), f"not a JSON Schema: {shortened(error.message)}", NoSchema(declaration))
    if (unparsed := next(tool.inputs.unparsed(), None)) is not None:
        path = tool.place_in_declaration(segments(unparsed.pointer))
        return replace(unparsed, pointer=pointer(*at, *path))
    for problem in misspelt_problems(tool.named):
        key = segments(problem.pointer)[0]
        places = {key: (key,) for key in declaration} | {
            key: ("properties", key) for key in declaration.get("properties", ())
        }
        return replace(problem, pointer=pointer(*at, *places.get(key, ())))
    if (hidden := tool.hidden) is not None:
        return Problem(pointer(*at), f"{hidden} counts only beside `properties`, at the top of a tool: move it there")
    return None


# Extending: a declaration of a registered activity adds to what its signature says (SPEC R12.2).
#
# The signature is among the definitions of the declared schema, which applies it: a call has to fit both, and what
# the declaration does not name stays as the function takes it.

_NAME: Final = "signature"
_ADDRESS: Final = "urn:acts:signature"
"""Address that separates the references in a signature from those of the declaration."""


def extended(tool: Tool, signature: Tool) -> Tool:
    """A declared tool with what the activity of its name says of itself; the same one where its calls may be carried
    out by other code.
    """
    declaration = tool.declaration
    if any(set(tool.choices(key)) - {tool.name} for key in ("_activity", "_delegate")):
        return tool
    definitions = declaration.get("$defs", {})
    name = next(name for number in count() if (name := f"{_NAME}{number or ''}") not in definitions)
    return Tool(
        tool.name,
        {
            **declaration,
            "$defs": {
                **definitions,
                name: {"$id": _ADDRESS, **signature.document, "properties": dict(_added(tool, signature))},
            },
            "allOf": [*declaration.get("allOf", ()), {"$ref": reference_to(("$defs", name))}],
        },
    )


def _added(tool: Tool, signature: Tool) -> Iterator[tuple[str, Any]]:
    """Properties that a signature adds to a declaration. What the declaration says of a meta-property counts alone:
    `Toolbox.behind` keeps it from widening, and of results R4.6 says so. A parameter that it declares as `{}` may be
    anything until the function is given it.
    """
    own = tool.document["properties"]
    for name, said in signature.document["properties"].items():
        if not (name.startswith("_") and tool.names(name)):
            yield name, True if own.get(name) == {} else said


def contradictions(tool: Tool, signature: Tool) -> Iterator[Problem]:
    """Where a declaration says what the signature of its activity rules out, so that no call could fit both. The
    pointers lead into the declaration.
    """
    (taken, theirs), (said_here, own) = _parameters(signature), _parameters(tool)
    algebra = Algebra()
    for name in dict.fromkeys(name for part in theirs for name in part.get("required", ())):
        if not name.startswith("_") and not admits_name(own, name):
            yield Problem("/additionalProperties", f"the activity {tool.name!r} needs {name!r}, which is shut out here")
    for name, said in said_here.items():
        at = pointer("properties", name) if name in tool.declaration.get("properties", ()) else ""
        if name not in taken:
            if said is not False and not admits_name(theirs, name):
                known = ", ".join(taken) or "none"
                yield Problem(at, f"the activity {tool.name!r} has no parameter {name!r}; its parameters: {known}")
            continue
        given, wanted = (
            algebra.made_of(excerpt({"allOf": [one]}, of.document))
            for one, of in ((said, tool), (taken[name], signature))
        )
        if not algebra.fit(given, wanted):
            text = f"is {described(given)} here, and {described(wanted)} by the activity {tool.name!r}"
            yield Problem(at, f"parameter {name!r} {text}: declare that, or less")


def _parameters(tool: Tool) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The schema of each parameter, by name, and the schemas of the tool that name parameters."""
    parts = conjuncts((tool.of_values,), tool.of_values)
    named = properties_in(parts)
    for name in (name for part in parts for name in part.get("required", ())):
        named.setdefault(name, [True])
    return {name: all_of(said) for name, said in named.items() if not name.startswith("_")}, parts


# The toolbox: what a call may name, and which code runs it (SPEC R4.2, R4.2a).

DEFINED: Final = 'define it under "delegates", as {NAME: {"context": [MESSAGES]}}, or in code with @delegate'
"""Advice for a delegate that is not there."""


def no_remedy(name: str) -> str:
    """Return no advice for an unknown tool."""
    return ""


class UnknownRunner(LookupError):
    """A call names an activity or a delegate that is not registered; `cause` lists those that are."""

    def __init__(
        self, what: str, name: str, known: Iterable[str], remedy: str = "", spelled: str | None = None
    ) -> None:
        super().__init__(f"unknown {what} {name!r}{f': it is written {spelled!r}' if spelled is not None else ''}")
        self.cause = UnknownName(name, tuple(known), remedy)


@dataclass(frozen=True)
class Toolbox:
    """Everything a call may name: tools, activities by name with their schemas, delegates.

    `activities` or `delegates` of None means that it is not known which there are: then every declared tool counts as
    backed by an activity of its name, and every delegate as registered (planning without a backend). `allow` holds the
    names of the tools and the code that calls may use; None allows all.
    """

    tools: Mapping[str, Tool]
    activities: Mapping[str, Mapping[str, Any]] | None = None
    delegates: Container[str] | None = None
    model: bool = True
    strict_meta: bool = False
    allow: Container[str] | None = None
    derived: Callable[[str], Tool | None] = lambda name: None
    """The tool that an activity is."""
    remedy: Callable[[str], str] = no_remedy
    """Gives advice for an unknown tool, by its name."""
    spelled: Callable[[str], str | None] = lambda name: None
    """The name of the delegate that another spelling leads to."""

    def tool(self, name: str) -> Tool | None:
        """The tool of that name: declared, else from the activity registered under it (SPEC R4.2)."""
        return self.tools.get(name) or self.derived(name)

    def runner(self, tool: str, delegate: str | None, activity: str | None) -> Runner:
        """Who runs a call of a tool that names these (SPEC R4.2). Raises `UnknownRunner`."""
        if delegate:
            if delegate != ANONYMOUS and self.delegates is not None and delegate not in self.delegates:
                raise UnknownRunner("delegate", delegate, listed(self.delegates), DEFINED, self.spelled(delegate))
            return Runner(Executor.DELEGATE, delegate)
        if activity:
            if self.activities is not None and activity not in self.activities:
                raise UnknownRunner("activity", activity, self.activities)
            return Runner(Executor.ACTIVITY, activity)
        if self.activities is None or tool in self.activities:
            return Runner(Executor.ACTIVITY, tool)
        return Runner(Executor.LATENT, tool)

    def choice_problems(self, tool: Tool | None, properties: Mapping[str, Any]) -> Iterator[Problem]:
        """Problems of a completed call's choice of its code: its tool's schema has to name the property by which it
        chooses, and it chooses once (SPEC R4.2, R4.2a).
        """
        chosen = [key for key in ("_activity", "_delegate") if properties.get(key)]
        if tool is not None:
            for key in chosen:
                if not tool.names(key):
                    yield Problem(
                        f"/{key}",
                        f"the schema of tool {tool.name!r} does not name {key}, so no call of it may carry one",
                    )
        if len(chosen) > 1:
            yield Problem("/_delegate", "_activity and _delegate cannot be used together: remove one")

    def pin_problems(
        self, tool: Tool | None, runner: Runner, properties: Mapping[str, Any], written: Mapping[str, Any]
    ) -> Iterator[Problem]:
        """Yield what the tools of the code that runs a completed call, other than the call's own, refuse of its
        meta-properties and the expressions `written` in it: no other name leads around what they pin (SPEC R4.2).
        """
        for behind in self.behind(tool, runner):
            for problem in behind.inputs.problems(written) if behind.inputs else ():
                message = f"{problem.message} (by the schema of {behind.name!r}, whose code runs the call)"
                yield replace(problem, message=message)
            if behind.pins or self.strict_meta:
                parameters = {key: value for key, value in properties.items() if not key.startswith("_")}
                pinned = {key: value for key, value in properties.items() if key not in (*WHO, RESULT)}
                found = behind.problems(pinned, lenient=True, strict_meta=self.strict_meta)
                anyway = set(behind.problems(parameters, lenient=True)) if found else set()
                anyway = {problem for problem in anyway if EXCEEDED not in problem.message}
                anyway |= set(tool.problems(pinned, lenient=True)) if found and tool is not None else set()
                if behind.pins_by_parameters and holds_expression(parameters):
                    yield Problem(
                        "",
                        f"the schema of {behind.name!r}, whose code runs the call, needs parameters that are not "
                        f"known yet to decide on meta-properties: call the tool {behind.name!r} itself",
                    )
                for problem in found:
                    if problem not in anyway and (not problem.pointer or problem.pointer.startswith("/_")):
                        message = f"{problem.message} (by the schema of {behind.name!r}, whose code runs the call)"
                        yield Problem(problem.pointer, message)

    def refusals(self, tool: str, runner: Runner) -> Iterator[Problem]:
        """Problems of a call whose tool, or code of another name, is not allowed (SPEC R4.2a)."""
        if self.allow is None:
            return
        if tool not in self.allow:
            yield Problem("/_tool", f"tool {tool!r} is not allowed here")
        if runner.name != tool and runner.name not in self.allow:
            yield Problem(f"/_{runner.executor}", f"{runner.executor} {runner.name!r} is not allowed here")

    def behind(self, tool: Tool | None, runner: Runner) -> Iterator[Tool]:
        """The tools of the code that runs a call, but for the call's own: declared, and the activity itself."""
        declared = self.tools.get(runner.name)
        if declared is not None and declared is not tool and runner.name != ANONYMOUS:
            yield declared
        derived = self.derived(runner.name) if runner.executor is Executor.ACTIVITY else None
        if derived is not None and derived is not tool:
            yield derived

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all known tools."""
        return tuple(dict.fromkeys((*self.tools, *(self.activities or ()))))


# Contracts: what registered code takes and gives, and whether it admits a call that was checked under another one
# (SPEC R17).
#
# A run keeps of each activity that its calls name a *mark*: the digest of the contract under which they were checked,
# and the scopes that it asked for. Code whose contract has that digest takes its calls. Any other contract has to admit
# each call by itself, with its resolved parameters; so one that takes more than before changes nothing for what is
# under way.

CONTRACT_CHANGED: Final = "ContractChanged"
"""The type of the error of a call for which no code came that admits it (SPEC R17.3)."""
SEVERAL: Final = "*"
"""The mark of calls of one run that were checked under several contracts: each contract has to admit them."""
_DIGITS: Final = 12
_BESIDE: Final = (*WHO, RESULT)
"""Meta-properties that say nothing of what code is given."""


@dataclass(frozen=True)
class Contract:
    """The parameters and the result of an activity, by its schema (SPEC R4.1a)."""

    name: str
    schema: Mapping[str, Any]

    @cached_property
    def digest(self) -> str:
        """12 hexadecimal digits; the same for equal schemas."""
        return digest_of(json.dumps(self.schema, sort_keys=True, default=str).encode())

    @cached_property
    def mark(self) -> str:
        """Text that a run stores for the contract: its digest and the scopes that it asks for, separated by spaces."""
        return " ".join((self.digest, *sorted(self.scopes)))

    @cached_property
    def scopes(self) -> frozenset[str]:
        """The kinds that the function takes as keyword-only parameters."""
        said = self.schema.get("properties", {}).get("_scopes", {})
        return frozenset(said.get(GRANTED, ()) if isinstance(said, Mapping) else ())

    @cached_property
    def tool(self) -> Tool:
        """The contract as a tool, to check calls against it."""
        return Tool(self.name, self.schema)

    def is_of(self, mark: str) -> bool:
        """Whether calls with this mark were checked under this contract."""
        return mark.partition(" ")[0] == self.digest

    def problems(
        self, properties: Mapping[str, Any], mark: str, *, lenient: bool = False, is_secret: bool = True
    ) -> list[Problem]:
        """Problems of a call that was checked under the contract of `mark`, by this contract. `properties` are
        complete, with resolved parameters, or with stand-ins for expressions if `lenient`. Values are shown unless they
        are secret.
        """
        if self.is_of(mark):
            return []
        given = {key: value for key, value in properties.items() if key not in _BESIDE}
        found = self.tool.problems(given, lenient=lenient, is_secret=is_secret)
        return [*found, *self._missing_scopes(properties, mark)]

    def _missing_scopes(self, properties: Mapping[str, Any], mark: str) -> Iterator[Problem]:
        """Problems for scopes that this contract needs, the contract of `mark` did not, and the call does not give."""
        digest, *asked = mark.split(" ")
        given = {str(scope).lstrip("†").split(".")[0] for scope in properties.get("_scopes", ())}
        if digest != SEVERAL and (missing := self.scopes - given - {*asked}):
            yield Problem(pointer("_scopes"), f"the code asks for {', '.join(sorted(missing))}, which it is not given")


def merged(marks: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """The marks of a run to which calls with other marks are added."""
    unlike = {name: SEVERAL for name in marks.keys() & others.keys() if marks[name] != others[name]}
    return {**marks, **others, **unlike}


def digest_of(data: bytes) -> str:
    """Digest for people: the first 12 hexadecimal digits of SHA-256."""
    return sha256(data).hexdigest()[:_DIGITS]


# Delegates: the context that an isolated sub-request is given, and nothing else (SPEC R9.1, R9.2).


def delegate_context(
    own: Sequence[Message], scoped: Iterable[Message], parameters: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Context of a delegate: its own messages, then the scoped messages of the parent, then the call's parameters as
    input (SPEC R9.2).

    `scoped` comes from `Execution.scoped_messages`; no message has provenance or routing (SPEC R1.4).
    """
    context = [shown(message) for message in own]
    context.extend(dict(message) for message in scoped)
    if parameters:
        context.append(render_data("input", dict(parameters), schema=input_schema(own)))
    return context


def child_context(
    own: Sequence[Message],
    scoped: Iterable[Message],
    parameters: Mapping[str, Any],
    labels: Labels,
    *,
    has_instances: bool = False,
) -> list[dict[str, Any]]:
    """Context of a delegate that is answered by a child run, each message with its sources: the delegate's own messages
    keep theirs, all others get `labels` and what the delegate's promises name (SPEC R16.2). With `has_instances` its
    own messages keep their instances: they are those of a workflow (SPEC R9.4).
    """
    given = labels.union(*(marks_of(message).labels for message in own if is_promise(message)))
    context = delegate_context(own, scoped, parameters)
    for position, message in enumerate(context):
        said = marks_of(own[position]).labels if position < len(own) else given
        if said and read_data(message) is not None:
            message[TRUST] = sorted(said)[: limits.MOST_LABELS]  # that it names any keeps effects from starting
        if has_instances and position < len(own) and "_instance" in own[position]:
            message["_instance"] = own[position]["_instance"]
    return context


def declares_tools(definition: Mapping[str, Any]) -> bool:
    """Whether a delegate's definition has tools of its own: it is a loop then, and its answer a run (SPEC R9.3)."""
    context = definition.get("context") or ()
    return bool(definition.get("tools")) or any(message.get("type") == "tool" for message in context)


def is_workflow(definition: Mapping[str, Any]) -> bool:
    """Whether a delegate's definition has calls of its own and no tools: its calls answer it, and no model (SPEC
    R9.4).
    """
    plans = (message for message in definition.get("context") or () if message.get("type") == "plan")
    return (definition.get("solution") is not None or any(plans)) and not declares_tools(definition)


def has_own_run(definition: Mapping[str, Any]) -> bool:
    """Whether a run of its own answers a delegate: a loop, or a workflow (SPEC R9.3, R9.4)."""
    return declares_tools(definition) or is_workflow(definition)


def workflow_document(definition: Mapping[str, Any]) -> dict[str, Any]:
    """The submission that a workflow is. Its schema is used beside a solution only: beside a plan message it would ask
    a model (SPEC R12.1).
    """
    parts = ("context", "solution", "config", *(("schema",) if definition.get("solution") is not None else ()))
    return {"context": [], **{key: definition[key] for key in parts if definition.get(key) is not None}}


def with_input(document: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A submission with these values of its input, which go before those in its context; it may hold references to
    none. Raises `Rejected` for values that do not fit the input that the context declares (SPEC R9.4).
    """
    context = [*document.get("context", ())]
    if values:
        context.append({"type": "input", "input": dict(values)})
    if problems := input_problems(context):
        raise Rejected(replace(problem, pointer=pointer("input") + problem.pointer) for problem in problems)
    return {**document, "context": context}


def unawaited_problem(call: Call, delegates: Mapping[str, Any]) -> str | None:
    """Return the problem of a call without an output path whose delegate is answered by a run, which counts with its
    result (SPEC R9.3). `delegates` are the definitions.
    """
    if not call.is_fire_and_forget or call.runner.executor is not Executor.DELEGATE:
        return None
    name = call.runner.name
    if declares_tools(delegates.get(name, {})):
        return f"delegate {name!r} has tools, and is a run: give the call an _outputPath"
    if is_workflow(delegates.get(name, {})):
        return f"delegate {name!r} is a workflow, and a run: give the call an _outputPath"
    return None


def input_schema(own: Sequence[Message]) -> Any:
    """The schema that a delegate declares for its input: from its last input message that has one."""
    for message in reversed(own):
        kind = message.get("kind") if message.get("type") == "data" else message.get("type")
        if kind == "input" and "schema" in message:
            return message["schema"]
    return MISSING


def input_problems(context: Sequence[Message]) -> list[Problem]:
    """Problems of the input that a workflow is given with its context, by the schema that the context declares of it
    (SPEC R9.4); the pointers lead into the input.
    """
    schema = input_schema(context)
    if schema is MISSING:
        return []
    given = Context.trusted([message for message in context if read_data(message) is not None]).fold().root("input")
    return compiled(schema).problems({} if given is MISSING else given)


def input_misfit(definition: Mapping[str, Any], call: Call) -> list[Problem]:
    """Problems of a call's parameters by the input schema that its delegate declares; expressions stand for any value.

    By default they are no errors, since the delegate's model bridges the gap; with `config.resolve: "upfront"` they are
    (SPEC R9.2), and so are those of a workflow, which has no model (SPEC R9.4). The definition is a valid one; the
    pointers lead into the call.
    """
    schema = input_schema(definition.get("context", ()))
    if schema is MISSING:
        return []
    parameters = {key: value for key, value in call.standing_in().items() if not key.startswith("_")}
    return compiled(schema).problems(parameters, lenient=True)
