"""Docstrings: what a function says of itself and of its parameters, for those who are to call it (SPEC R12.2a)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from docstring_parser import ParseError, parse

_SECTIONS = (":", "Args:", "Arguments:", "Parameters", "Returns:", "Raises:", "@param")
"""How a docstring begins that says nothing of the whole."""


def described(function: Callable[..., Any], schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a function's parameters, with what its docstring says: its first paragraph of the whole, its
    sections (of Google, NumPy, Sphinx or Epydoc) of each parameter that has no description yet.
    """
    doc = inspect.getdoc(function) or ""
    first = " ".join(doc.partition("\n\n")[0].split())
    found = {"description": first} if first and not doc.startswith(_SECTIONS) else {}
    said = _said_of_parameters(doc)
    properties = {
        name: {**part, "description": said[name]}
        if name in said and isinstance(part, dict) and "description" not in part
        else part
        for name, part in schema.get("properties", {}).items()
    }
    return {**schema, **found, **({"properties": properties} if properties else {})}


def _said_of_parameters(doc: str) -> dict[str, str]:
    try:
        parameters = parse(doc).params
    except ParseError:
        return {}
    return {each.arg_name: " ".join(each.description.split()) for each in parameters if each.description}
