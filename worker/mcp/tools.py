"""Tools in general: who calls one, the runs it may see, its arguments and its listing, and how MCP has its answer."""

from __future__ import annotations

import hashlib
import inspect
import json
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, TypeVar

from mcp_types import CallToolResult, TextContent, Tool, ToolAnnotations
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from redis import Redis

from ...broker_config import Settings
from ...broker_config.tokens import Identity, Right
from ...protocol import Plan, Rejected
from ...protocol.calls.tools import PLAIN
from ...protocol.paths import MISSING
from ...protocol.plan.documents import decode
from .. import limits
from ..client.async_client import AsyncClient, AsyncRun
from ..client.deployments import RunIndex
from ..client.run import ReadableRun
from ..client.submitting import label_of
from ..errors import NotPossibleNow
from ..store.connections import connect, redis_errors
from ..ui import Page
from ..ui.access import Reader, Refused, document, encoded, problems, refusal
from ..ui.opened import Query
from ..ui.page import runs

T = TypeVar("T")

# Callers, and their rights.

_LOCAL: Final[tuple[Right, ...]] = ("read", "all")
_WRITING: Final[tuple[Right, ...]] = ("submit", "decide", "control")


def local_rights(*, write: bool) -> frozenset[Right]:
    """The rights of the client that has started the server: to read all runs, and with `write` to change them."""
    return frozenset((*_LOCAL, *(_WRITING if write else ())))


@dataclass(frozen=True, slots=True)
class Principal:
    """A user of the server."""

    name: str
    """The name in the audit trail."""
    rights: frozenset[Right]
    identity: Identity | None = None
    """The owner of a token, who owns the runs that are submitted with it; None where runs have no owner."""

    @property
    def owner(self) -> str | None:
        """The owner of the runs that are submitted here."""
        return self.identity.name if self.identity is not None else None

    @property
    def only(self) -> str | None:
        """The owner whose runs alone the user may see; None where that is all runs."""
        return None if "all" in self.rights else self.owner

    def require(self, right: Right, tool: str) -> None:
        """Raise `Refused` where the user lacks the right that a tool takes."""
        if right not in self.rights:
            has = ", ".join(sorted(self.rights))
            text = f"{tool} takes the right to {right}, and {self.name} has {has}"
            raise Refused(403, "NotAdmitted", f"{text}: `acts mcp --write`, or its token in ACTS_MCP_TOKENS, gives it")


# The runs that a principal may see: found by id, name or `latest`, read as the pages read them, and steered in the
# principal's name.


class NoValue(NotPossibleNow):
    """A place that has no value."""


class Runs:
    """All runs, of which each principal sees its own. Make it in the event loop that serves."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._redis: Redis = connect(settings)
        self._page = Page(self._redis, settings)
        self._reader = Reader(self._page)
        self._clients: dict[str, AsyncClient] = {}

    async def close(self) -> None:
        """Close the connections."""
        self._reader.close()
        for client in self._clients.values():
            await client.close()
        self._redis.close()

    def client(self, principal: Principal) -> AsyncClient:
        """A client that acts in a principal's name."""
        if principal.name not in self._clients:
            self._clients[principal.name] = AsyncClient(self.settings.acting_for(principal.name, principal.identity))
        return self._clients[principal.name]

    async def find(self, principal: Principal, text: str) -> str:
        """The id of the run that a text means, among those that a principal may see. Raises `RunNotFound`."""
        prefix, most = self.settings.key_prefix, limits.TOOLS_MOST_LOOKED_AT
        only, asker = principal.only, principal.owner
        return await self._read(
            lambda: RunIndex(self._redis, prefix, owner=only, asker=asker, most_looked_at=most).find(text)
        )

    async def run(self, principal: Principal, text: str) -> AsyncRun:
        """The run that a text means."""
        return self.client(principal).run_of(await self.find(principal, text))

    async def listed(self, principal: Principal, query: Mapping[str, str]) -> Any:
        """The runs that a principal may see, as the page lists them."""
        return await self._read(lambda: runs(self._redis, self.settings, Query(query), owner=principal.only))

    async def _read(self, ask: Callable[[], T]) -> T:
        """The result of a function that reads the list of runs, on a thread."""
        return await self._reader.call("", redis_errors(self.settings)(ask))

    async def page(self, run: str, what: str = "", query: Mapping[str, str] | None = None) -> Any:
        """A document of the pages about a run that `find` has found."""
        return await self._reader.answer(f"runs/{run}/{what}" if what else f"runs/{run}", query or {})

    async def value(self, run: str, path: str, instance: str | None) -> Any:
        """The value at a path of a run. Raises `NoValue`."""

        def found() -> Any:
            explained = ReadableRun(run, self._redis, self.settings).explain(path, instance=instance)
            if explained.value is MISSING:
                raise NoValue(explained.conflict or f"nothing is at {path}: `explain` says why")
            return explained.value

        return await self._reader.call(run, found)

    async def output(self, run: str) -> Any:
        """The whole output of a run; None before its end."""
        return await self._reader.call(run, lambda: self._page.output(run))

    async def ended(self, principal: Principal, run: str, seconds: float) -> None:
        """Wait for a run's end, and no longer than so many seconds."""
        with suppress(TimeoutError):
            await self.client(principal).run_of(run).ended(seconds)

    async def submit(
        self, principal: Principal, value: Any, *, key: str | None = None, allow: list[str] | None = None, **about: Any
    ) -> tuple[AsyncRun, Plan]:
        """Submit a document in the name of a principal, who owns the run. Raises `Rejected`."""
        client = self.client(principal)
        plan = await client.check_submission(value, allow=allow)
        id_ = id_of_key(principal.owner, key) if key is not None else None
        label = await to_thread(label_of, value, id=id_, **about)
        return await client.submit_plan(plan, label), plan


_DIGITS: Final = 32


def id_of_key(owner: str | None, key: str) -> str:
    """Make the id of the run that an owner submits under a key of its own: nobody else's key leads to it."""
    return hashlib.sha256(json.dumps([owner, key]).encode()).hexdigest()[:_DIGITS]


Progress = Callable[[float, float | None, str | None], Awaitable[None]]
"""Reports to the client how far a call has come: how much is done, of how much, in words."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The caller of a tool, the runs that it reads, and the reporting of its progress."""

    runs: Runs
    principal: Principal
    progress: Progress


class ServerTool(BaseModel):
    """A tool; its fields are its parameters, and an object of it is one call."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    right: ClassVar[Right] = "read"
    is_destructive: ClassVar[bool] = False
    """Whether the tool may end or change a run, or have something done outside."""
    is_idempotent: ClassVar[bool] = False
    """Whether calling twice does the same as calling once."""
    output: ClassVar[Mapping[str, Any]] = {"type": "object"}
    """The schema of the answer."""

    async def execute(self, context: ToolContext) -> dict[str, Any]:
        """Execute the call, and return its answer as JSON."""
        raise NotImplementedError

    @classmethod
    def read(cls, arguments: Mapping[str, Any]) -> ServerTool:
        """A call with these arguments. Raises pydantic's `ValidationError`."""
        return cls.model_validate(arguments)

    @classmethod
    def listed(cls, name: str) -> Tool:
        """The tool as MCP lists it, under a name."""
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


class RunTool(ServerTool):
    """A tool about one run."""

    run: str = Field(
        min_length=1, max_length=256, description="The run: its id, the beginning of it, its name, or `latest`."
    )


class _Untitled(GenerateJsonSchema):
    """A schema without the titles that only repeat the names of its properties."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Never."""
        return False


def input_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema of a tool's parameters."""
    schema = model.model_json_schema(schema_generator=_Untitled)
    return {key: value for key, value in schema.items() if key not in ("title", "description")}


@dataclass(frozen=True, slots=True)
class Described:
    """The description of an activity for a client."""

    description: str
    parameters: dict[str, Any]
    """Their schema, without what is the engine's own."""
    result: Any
    """The schema of its result; {} for anything."""
    effects: bool
    """True where it changes something outside of the run."""


def described(schema: Mapping[str, Any]) -> Described:
    """Take an activity's schema apart."""
    properties, required = schema.get("properties", {}), schema.get("required", ())
    parameters = {
        **{key: value for key, value in schema.items() if not key.startswith("_") and key != "description"},
        "type": "object",
        "properties": {name: value for name, value in properties.items() if not name.startswith("_")},
        "required": [name for name in required if not name.startswith("_")],
    }
    result = properties.get("_output", {})
    kept = {key: value for key, value in result.items() if key != PLAIN} if isinstance(result, dict) else result
    effects = bool(schema.get("_trust", {}).get("effects"))
    return Described(str(schema.get("description", "")), parameters, kept, effects)


# Answers as MCP has them: structured content, and the same as a text; or an error as a text of JSON.
#
# Values that others wrote (SPEC R16) are data in it, and nowhere else. An error reads as on the pages: a sentence that
# says what to do, and nothing of the inside.


def answer(found: dict[str, Any]) -> CallToolResult:
    """The answer of a tool."""
    return CallToolResult(content=[_text(found)], structured_content=found)


def failure(error: Exception, tool: str) -> CallToolResult:
    """The error of a tool, for the client to read."""
    if isinstance(error, ValidationError):
        wrong = (f"{'/'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}" for each in error.errors())
        error = Refused(400, "BadArguments", f"{tool} is not called in this way: {'; '.join(wrong)}"[:2_000])
    found = document(refusal(error))
    if isinstance(error, Rejected):
        found["error"]["message"] = "the submission is refused, and nothing of it runs"
        found["error"] |= problems(error)
    return CallToolResult(content=[_text(found)], is_error=True)


def _text(found: Mapping[str, Any]) -> TextContent:
    return TextContent(type="text", text=encoded(found).decode())
