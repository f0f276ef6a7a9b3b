"""What all tools have in common: their arguments, what they say of themselves, the right that they take."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from mcp_types import Tool, ToolAnnotations
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from acts_celery.broker_config.tokens import Right
from acts_celery.protocol import Rejected
from acts_celery.protocol.submission.decoding import decode

from .principals import Principal
from .runs import Runs

Progress = Callable[[float, float | None, str | None], Awaitable[None]]
"""Tells the client how far a call has come: so much, of so much, in words."""


@dataclass(frozen=True, slots=True)
class Asking:
    """Who calls a tool, on what, and how it hears of progress."""

    runs: Runs
    principal: Principal
    progress: Progress


class ServerTool(BaseModel):
    """A tool; its fields are its parameters, and an object of it is one call."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    right: ClassVar[Right] = "read"
    is_destructive: ClassVar[bool] = False
    """Whether it may end or change what is there, or have something done outside."""
    is_idempotent: ClassVar[bool] = False
    """Whether the same call twice does the same as once."""
    output: ClassVar[Mapping[str, Any]] = {"type": "object"}
    """The schema of what it gives."""

    async def carry_out(self, asking: Asking) -> dict[str, Any]:
        """Do it; return what the tool gives, as JSON."""
        raise NotImplementedError

    @classmethod
    def read(cls, arguments: Mapping[str, Any]) -> ServerTool:
        """A call with these arguments. Raises pydantic's `ValidationError`."""
        return cls.model_validate(arguments)

    @classmethod
    def tool(cls, name: str) -> Tool:
        """As MCP lists it."""
        reads = cls.right == "read"
        return Tool(
            name=name,
            description=" ".join(inspect.cleandoc(cls.__doc__ or "").split()),
            input_schema=input_schema(cls),
            output_schema=dict(cls.output),
            annotations=ToolAnnotations(
                read_only_hint=reads,
                destructive_hint=None if reads else cls.is_destructive,
                idempotent_hint=None if reads else cls.is_idempotent,
                open_world_hint=cls.right in ("submit", "decide"),
            ),
        )


def read_text(value: Any) -> Any:
    """An object or a list that came as its JSON text, as some clients and models send it; else the value.

    Raises `ValueError` for a text that begins like one and is none.
    """
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        return decode(value.encode())
    except Rejected as error:
        raise ValueError(f"a text that should be JSON is {error.errors[0].message}") from None


SubmittedDocument = Annotated[
    dict[str, Any] | list[Any],
    BeforeValidator(read_text),
    Field(description="The submission: an object, or a bare list of calls."),
]


class OfRun(ServerTool):
    """A tool about one run."""

    run: str = Field(
        min_length=1, max_length=256, description="The run: its id, the beginning of it, its name, or `latest`."
    )


def input_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of a tool's parameters, without the titles that only repeat their names."""
    schema = model.model_json_schema()
    schema.pop("description", None)
    found: dict[str, Any] = _untitled(schema)
    return found


def _untitled(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_untitled(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key != "title" or not isinstance(value, str)}
    return {key: _untitled(value) for key, value in kept.items()}
