"""What a client is handed to be run: the parts of a submission, one by one or beside a whole document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

from acts_celery.protocol import Problem, Rejected
from acts_celery.protocol.language.errors import pointer
from acts_celery.protocol.language.files import with_changed
from acts_celery.protocol.submission.shapes import shaped
from acts_celery.worker.errors import OutputUnfit
from acts_celery.worker.registry.activities import first_fault

from .files import File, Given, content_of
from .labels import LabelOptions
from .results import Result

Texts = Iterable[str | Mapping[str, Any] | File | Path | bytes]
"""Messages; a text is one of type `text`, a file one that shows it."""
Tool = Callable[..., Any] | str | Mapping[str, Any]
"""An activity's function, the name of an activity, or an object of tool name to JSON Schema."""

_ADDED: Final = ("delegates", "config")
"""The parts whose entries stand beside those of a document of the same part."""
_PARTS: Final = ("tools", "schema", *_ADDED)


class SubmissionOptions(LabelOptions, total=False):
    """What may be said of a submission besides its context and solution. A `schema` is a JSON Schema, or a class or
    other type that pydantic has a schema of.
    """

    tools: Tool | Sequence[Tool] | None
    delegates: Mapping[str, Any] | None
    schema: Any
    config: Mapping[str, Any] | None
    allow: Iterable[str] | None
    files: Mapping[str, Given] | None


@dataclass(frozen=True)
class OutputType:
    """The type of a run's output, from which its schema was made."""

    type: Any
    adapter: TypeAdapter[Any]


def typed(result: Result, kind: OutputType | None) -> Result:
    """The result, of a completed run with its output as a value of the type. Raises `OutputUnfit`."""
    if kind is None or result.status != "completed":
        return result
    try:
        return replace(result, output=kind.adapter.validate_python(result.output), plain_output=result.output)
    except ValidationError as error:
        name = getattr(kind.type, "__name__", kind.type)
        raise OutputUnfit(
            f"run {result.run} has completed, and {name} refuses its output: {first_fault(error)}; "
            "`client.run(ID).result().output` is the output as JSON"
        ) from error


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


def output_type(schema: Any) -> OutputType | None:
    """The type that a schema is; None for a JSON Schema. Raises `protocol.Rejected` for what pydantic has none of."""
    if schema is None or isinstance(schema, bool | Mapping):
        return None
    try:
        found = OutputType(schema, TypeAdapter(schema))
        found.adapter.json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
        reason = str(error).splitlines()[0]
        text = f"{schema!r} is no JSON Schema and has none: {reason}"
        raise Rejected([Problem(pointer("schema"), text)]) from error
    return found


def label_options(options: SubmissionOptions) -> LabelOptions:
    """Those of the options that are about the run and not about what it does."""
    return {key: options[key] for key in LabelOptions.__annotations__ if key in options}  # type: ignore[literal-required, return-value]  # the keys are its own


def _listed(tools: Any) -> Sequence[Any]:
    """A list of tools, also of one alone."""
    return tools if isinstance(tools, list | tuple) else [tools]
