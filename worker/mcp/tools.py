"""What all tools have in common: their arguments, what they say of themselves, the right that they take."""

from __future__ import annotations

import inspect
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final

from mcp_types import Tool, ToolAnnotations
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from redis import Redis

from ...broker_config import Settings
from ...broker_config.tokens import Identity, Right
from ...protocol import Plan, Rejected
from ...protocol.paths import MISSING
from ...protocol.plan.submission import decode
from .. import limits
from ..client.async_client import AsyncClient, AsyncRun
from ..client.deployments import Overview
from ..client.run import ReadableRun
from ..client.submitting import id_of_key, label_of
from ..errors import NotPossibleNow
from ..store.connections import connect, redis_errors
from ..ui import Page
from ..ui.access import Reader, Refused
from ..ui.opened import Query
from ..ui.page import runs

# Who asks, and what that admits.

_LOCAL: Final[tuple[Right, ...]] = ("read", "all")
_WRITING: Final[tuple[Right, ...]] = ("submit", "decide", "control")


def local_rights(*, write: bool) -> frozenset[Right]:
    """The rights of whoever has started the server, whose settings reach all runs; with `write` also to change them."""
    return frozenset((*_LOCAL, *(_WRITING if write else ())))


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who uses the server."""

    name: str
    """As the audit trail has it."""
    rights: frozenset[Right]
    identity: Identity | None = None
    """Who has shown a token, and owns the runs that are submitted here. None: they are nobody's."""

    @property
    def owner(self) -> str | None:
        """Whose the runs are that are submitted here."""
        return self.identity.name if self.identity is not None else None

    @property
    def only(self) -> str | None:
        """The owner whose runs alone are seen; None where all are."""
        return None if "all" in self.rights else self.owner

    def require(self, right: Right, tool: str) -> None:
        """Raise `Refused` where a tool takes a right that is not there."""
        if right not in self.rights:
            has = ", ".join(sorted(self.rights))
            text = f"{tool} takes the right to {right}, and {self.name} has {has}"
            raise Refused(403, "NotAdmitted", f"{text}: `acts mcp --write`, or its token in ACTS_MCP_TOKENS, gives it")


# The runs that somebody may see: found by id, name or `latest` among them, read as the pages read them, and steered in
# the name of whoever asks.


class NoValue(NotPossibleNow):
    """There is no value at a place."""


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
        """What acts in somebody's name."""
        if principal.name not in self._clients:
            self._clients[principal.name] = AsyncClient(self.settings.acting_for(principal.name, principal.identity))
        return self._clients[principal.name]

    async def find(self, principal: Principal, text: str) -> str:
        """The id of the run that a text means, among those that somebody may see. Raises `RunNotFound`."""
        prefix = self.settings.key_prefix

        def found() -> str:
            with redis_errors(self.settings):
                overview = Overview(
                    self._redis,
                    prefix,
                    owner=principal.only,
                    asker=principal.owner,
                    most_looked_at=limits.TOOLS_MOST_LOOKED_AT,
                )
                return overview.find(text)

        return await self._reader.call("", found)

    async def run(self, principal: Principal, text: str) -> AsyncRun:
        """The run that a text means."""
        return self.client(principal).run_of(await self.find(principal, text))

    async def listed(self, principal: Principal, query: Mapping[str, str]) -> Any:
        """The runs that somebody may see, as the page lists them."""

        def found() -> Any:
            with redis_errors(self.settings):
                return runs(self._redis, self.settings, Query(query), owner=principal.only)

        return await self._reader.call("", found)

    async def page(self, run: str, what: str = "", query: Mapping[str, str] | None = None) -> Any:
        """What the page says of a run that `find` has found."""
        return await self._reader.answer(f"runs/{run}/{what}" if what else f"runs/{run}", query or {})

    async def value(self, run: str, path: str, instance: str | None) -> Any:
        """The value at a path of a run. Raises `NoValue`."""

        def found() -> Any:
            readable = ReadableRun(run, self._redis, self.settings)
            explained = readable.explain(path, instance=instance)
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
        self,
        principal: Principal,
        value: Any,
        *,
        key: str | None,
        name: str | None,
        tags: tuple[str, ...],
        allow: list[str] | None,
    ) -> tuple[AsyncRun, Plan]:
        """Submit a document in somebody's name, who owns the run. Raises `Rejected`."""
        client = self.client(principal)
        plan = await client.check_submission(value, allow=allow)
        id_ = id_of_key(principal.owner, key) if key is not None else None
        label = await to_thread(label_of, value, id=id_, name=name, tags=tags)
        return await client.submit_plan(plan, label), plan


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
