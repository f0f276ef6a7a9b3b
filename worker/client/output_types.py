"""The type of a run's output: a class that was submitted as its schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter, ValidationError

from acts_celery.protocol import Problem, Rejected
from acts_celery.protocol.language.errors import pointer
from acts_celery.worker.errors import OutputUnfit
from acts_celery.worker.registry.activities import first_fault

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from .results import Result

    OutputT = TypeVar("OutputT", default=Any, covariant=True)
    """What the output of a run is; of one that is written as `Run` alone, anything."""
else:
    from typing import TypeVar

    OutputT = TypeVar("OutputT", covariant=True)


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
