"""What a client is handed to be run: the parts of a submission, one by one or beside a whole document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from .labels import LabelOptions

_ADDED: Final = ("tools", "delegates", "config")
"""The parts whose entries stand beside those of a document of the same part."""


class SubmissionOptions(LabelOptions, total=False):
    """What may be said of a submission besides its context and solution."""

    tools: Mapping[str, Any] | None
    delegates: Mapping[str, Any] | None
    schema: Mapping[str, Any] | bool | None
    config: Mapping[str, Any] | None
    allow: Iterable[str] | None


def document_of(context: Iterable[Mapping[str, Any]], solution: Mapping[str, Any] | None) -> dict[str, Any]:
    """The submission of a context and a solution."""
    document: dict[str, Any] = {"context": [dict(message) for message in context]}
    return document if solution is None else {**document, "solution": solution}


def with_parts(value: Any, options: SubmissionOptions) -> Any:
    """A submission with further tools, delegates and settings beside its own, which they replace where the names are
    the same, and with another schema. What is no object is given back, for the check to refuse it.
    """
    if not isinstance(value, Mapping):
        return value
    whole = dict(value)
    for key in _ADDED:
        given: Any = options.get(key)
        if given is not None:
            own = whole.get(key, {})
            whole[key] = {**own, **given} if isinstance(own, Mapping) else given
    if (schema := options.get("schema")) is not None:
        whole["schema"] = schema
    return whole


def label_options(options: SubmissionOptions) -> LabelOptions:
    """Those of the options that are about the run and not about what it does."""
    return {key: options[key] for key in LabelOptions.__annotations__ if key in options}  # type: ignore[literal-required, return-value]  # the keys are its own
