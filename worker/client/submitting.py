"""What a client is handed to be run: the parts of a submission, one by one or beside a whole document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from acts_celery.protocol.language.files import with_changed
from acts_celery.protocol.submission.shapes import shaped

from .files import File, Given, content_of
from .labels import LabelOptions
from .output_types import output_type

Texts = Iterable[str | Mapping[str, Any] | File | Path | bytes]
"""Messages; a text is one of type `text`, a file one that shows it."""
Tool = Callable[..., Any] | str | Mapping[str, Any]
"""An activity's function, the name of an activity, or an object of tool name to JSON Schema."""

_ADDED: Final = ("delegates", "config")
"""The parts whose entries stand beside those of a document of the same part."""
_PARTS: Final = ("tools", "schema", *_ADDED)


class OtherOptions(LabelOptions, total=False):
    """What may be said of a submission besides its context, its solution and its schema."""

    tools: Tool | Sequence[Tool] | None
    delegates: Mapping[str, Any] | None
    config: Mapping[str, Any] | None
    allow: Iterable[str] | None
    files: Mapping[str, Given] | None


class SubmissionOptions(OtherOptions, total=False):
    """These, and a `schema`: a JSON Schema, or a class or other type that pydantic has a schema of."""

    schema: Any


def document_of(
    context: str | Mapping[str, Any] | File | Path | bytes | Texts, solution: Mapping[str, Any] | None
) -> dict[str, Any]:
    """The submission of a context and a solution."""
    document: dict[str, Any] = {"context": messages_of(context)}
    return document if solution is None else {**document, "solution": solution}


def messages_of(context: str | Mapping[str, Any] | File | Path | bytes | Texts) -> list[dict[str, Any]]:
    """The messages of a context, or of one message; texts are messages of type `text`, files are of the user."""
    messages = (context,) if isinstance(context, str | Mapping | File | Path | bytes) else context
    return [_message_of(each) for each in messages]


def _message_of(each: str | Mapping[str, Any] | File | Path | bytes) -> dict[str, Any]:
    if isinstance(each, str):
        return {"type": "text", "message": each}
    if isinstance(each, Mapping):
        return dict(with_changed(each, content_of))
    return {"role": "user", "content": [content_of(each)]}


def with_parts(value: Any, options: SubmissionOptions, tool_of: Callable[[Callable[..., Any]], str]) -> Any:
    """A submission with further tools, delegates and settings beside its own, which they replace where the names are
    the same, and with another schema. What is no object is given back, for the check to refuse it.

    `tool_of` gives the tool of an activity's function. Raises `protocol.Rejected`.
    """
    document, _ = shaped(value)
    if not isinstance(document, Mapping) or all(options.get(part) is None for part in _PARTS):
        return value
    whole = dict(document)
    for key in _ADDED:
        given: Any = options.get(key)
        if given is not None:
            own = whole.get(key, {})
            whole[key] = {**own, **given} if isinstance(own, Mapping) and isinstance(given, Mapping) else given
    if (tools := options.get("tools")) is not None:
        own = whole.get("tools") or {}
        if isinstance(tools, Mapping) and isinstance(own, Mapping):
            whole["tools"] = {**own, **tools}
        else:
            listed = [tool_of(tool) if callable(tool) else tool for tool in _listed(tools)]
            whole["tools"] = [*(_listed(own) if own else ()), *listed]
    if (schema := options.get("schema")) is not None:
        kind = output_type(schema)
        whole["schema"] = schema if kind is None else kind.adapter.json_schema()
    return whole


def label_options(options: SubmissionOptions) -> LabelOptions:
    """Those of the options that are about the run and not about what it does."""
    return {key: options[key] for key in LabelOptions.__annotations__ if key in options}  # type: ignore[literal-required, return-value]  # the keys are its own


def _listed(tools: Any) -> Sequence[Any]:
    """A list of tools, also of one alone."""
    return tools if isinstance(tools, list | tuple) else [tools]
