"""Wording: jsonschema's messages, in which values stand as JSON writes them and not as Python does."""

from __future__ import annotations

import json
from typing import Any, Final

from jsonschema.exceptions import SchemaError, ValidationError

from .calls import WholeCall


def worded(error: ValidationError | SchemaError) -> str:
    """What is wrong with a value, which is named first where it is named."""
    if error.validator is None:
        return f"{spelled(error.instance)} is not admitted"
    begins, rest = without_value(error)
    return spelled(error.instance) + rest if begins else rest


def without_value(error: ValidationError | SchemaError) -> tuple[bool, str]:
    """Whether the message begins with the value, and what of it follows; else all of it."""
    message, value = str(error.message), repr(error.instance)
    match error.validator:
        case "enum":
            return True, f" is not one of {spelled(error.validator_value)}"
        case "const":
            return False, f"{spelled(error.validator_value)} was expected"
    begins = error.validator not in OF_THE_SCHEMA and message.startswith(value)
    return begins, message[len(value) :] if begins else message


def spelled(value: Any) -> str:
    """A value as JSON, but for texts: these are quoted like names. It can always be printed as UTF-8."""
    if isinstance(value, str):
        return repr(value)
    shown = value.parameters if isinstance(value, WholeCall) else value
    text = json.dumps(shown, ensure_ascii=False, skipkeys=True, default=str)
    return text.encode("utf-8", "backslashreplace").decode()


OF_THE_SCHEMA: Final = frozenset({"const", "required", "dependentRequired", "minContains", "maxContains"})
"""Keywords whose messages are made of the schema alone; the others begin with the value, or tell parts of it."""
