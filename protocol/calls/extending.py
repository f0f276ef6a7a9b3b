"""Extending: a declaration of a registered activity adds to what its signature says (SPEC R12.2).

The signature stands among the definitions of the declared schema, which applies it: a call has to fit both, and what
the declaration does not name stays as the function takes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, Final

from acts_celery.protocol.language.errors import Problem, pointer
from acts_celery.protocol.schemas import conjuncts, excerpt
from acts_celery.protocol.schemas.algebra import Algebra, told
from acts_celery.protocol.schemas.parts import admits_name
from acts_celery.protocol.schemas.walk import reference_to

from .tools import Tool

_NAME: Final = "signature"
_ADDRESS: Final = "urn:acts:signature"
"""By which the references inside of a signature are told from those of the declaration."""


def extended(tool: Tool, signature: Tool) -> Tool:
    """A declared tool with what the activity of its name says of itself; the same one where its calls may be carried
    out by other code.
    """
    declaration = tool.declaration
    if any(set(tool.choices(key)) - {tool.name} for key in ("_activity", "_delegate")):
        return tool
    definitions = declaration.get("$defs", {})
    name = next(name for name in _names() if name not in definitions)
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
    """What a signature says of properties beside a declaration. What that says of a meta-property counts alone:
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
            text = f"is {told(given)} here, and {told(wanted)} by the activity {tool.name!r}: declare that, or less"
            yield Problem(at, f"parameter {name!r} {text}")


def _parameters(tool: Tool) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What is said of each parameter of every call, and the schemas that say it."""
    parts = conjuncts((tool.document,), tool.document)
    named: dict[str, list[Any]] = {}
    for part in parts:
        for name in (*part.get("properties", ()), *part.get("required", ())):
            if not name.startswith("_"):
                named.setdefault(name, []).append(part.get("properties", {}).get(name, True))
    return {name: {"allOf": said} if len(said) > 1 else said[0] for name, said in named.items()}, parts


def _names() -> Iterator[str]:
    """Names for the signature among the definitions of a declaration: the first that is free is taken."""
    return (f"{_NAME}{number or ''}" for number in count())
