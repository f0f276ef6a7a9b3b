"""The tools of MCP servers as activities: those of `ACTS_MCP` that are admitted, under `SERVER.TOOL`.

Their results are untrusted, and they have effects (SPEC R16.1), unless the operator or the tool says otherwise. The
operator may say so by field and by parameter (SPEC R16.8).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, Final, Literal

from ...broker_config import McpServer, Settings
from ...protocol.calls.declarations import read_tools
from ...protocol.calls.meta_properties import WHO
from ...protocol.calls.tools import RESOURCE, SERVERS
from ...protocol.calls.trust import trust_problems
from ...protocol.errors import Problem, pointer
from ...protocol.limits import Limits, value_problems
from ...protocol.messages import TRUST
from ...protocol.paths import copied
from ...protocol.schemas.walk import DEFINITIONS, misfits, modern
from .. import limits
from ..errors import ActivitiesError, CallFailed
from .activities import Activity, Policy, Registry, registry
from .loading import load_activities

if TYPE_CHECKING:
    from .mcp_sessions import Connections


_NAME: Final = re.compile(r"[A-Za-z0-9_./-]{1,128}")
"""A tool's name, as the specification has it (SEP-986)."""


def load_code(settings: Settings) -> None:
    """Register all that the settings name: modules of activities, and admitted tools of MCP servers.

    No server is asked. Raises `ActivitiesError`.
    """
    load_activities(settings)
    register_tools(settings, registry)


def register_tools(settings: Settings, known: Registry) -> None:
    """Register the admitted tools of the servers that the settings name. Raises `ActivitiesError`."""
    if not settings.mcp:
        return
    from .mcp_sessions import Connections

    connections, admitted = Connections(settings), read_admitted(settings)
    for name, server in settings.mcp.items():
        for tool in admitted.get(name, {}).values():
            known.add_activity(activity_of(name, server, tool, connections))


def unadmitted(settings: Settings, name: str) -> str:
    """Advice about a tool that is not registered, where its name is one of an MCP server; else nothing."""
    server, _, tool = name.partition(".")
    if server not in settings.mcp or not _NAME.fullmatch(tool):
        return ""
    return f": it is not admitted; if MCP server {server} has it, `acts mcp admit {name}` does that"


def activity_of(name: str, server: McpServer, tool: Declaration, connections: Connections) -> Activity:
    """The activity that calls a tool of a server."""

    async def call(call: Mapping[str, Any], _context: Mapping[str, Any]) -> Any:
        arguments = {key: value for key, value in call.items() if not key.startswith("_")}
        return await connections.call(name, tool, arguments)

    seconds, most = server.timeout_seconds, server.max_concurrency
    policy = Policy(retries=server.retries, timeout_seconds=seconds, max_concurrency=most)
    return Activity(
        f"{name}.{tool.name}",
        call,
        tool.schema(None if server.trusted else f"{SERVERS}{name}", f"{SERVERS}{name}"),
        scopes=(),
        takes_call=True,
        queue=server.queue,
        policy=policy,
        given_version=tool.digest[: limits.VERSION_DIGITS],
    )


# Declarations of tools by MCP servers: their digests, and the schemas of the activities that they become.
#
# The digest is over all that a model or the engine goes by: a tool that changes any of it is another tool.

_FIELDS: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_NOT_OURS: Final = ("$schema", "title", "$id")
_SCHEMAS: Final = ("inputSchema", "outputSchema")
_WRAPS: Final = "x-fastmcp-wrap-result"
_WRAPPED: Final = "result"


@dataclass(frozen=True)
class Declaration:
    """A tool of a server, as the server lists it (`tools/list`)."""

    fields: Mapping[str, Any]
    only_reads: bool = False
    """Whether the operator who admitted the tool says that it only reads (SPEC R16.8)."""
    said: Mapping[str, Any] = field(default_factory=dict)
    """The fields, content, proofs and hosts that the operator who admitted the tool declares (SPEC R16.8)."""
    fault: str = ""
    """The reason why this is no declaration by the protocol."""
    asks: str = ""
    """The method of the protocol that is called, where this is not one of the server's tools (see `context_tools`)."""

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Declaration:
        """The parts of a listed tool that count here."""
        fields = {key: raw[key] for key in _FIELDS if raw.get(key) is not None}
        hints = {key: fields["annotations"][key] for key in _HINTS if key in (fields.get("annotations") or {})}
        return cls({**fields, "annotations": hints} if "annotations" in fields else fields)

    @property
    def name(self) -> str:
        """The server's name for it."""
        return str(self.fields["name"])

    @property
    def description(self) -> str:
        """The server's description of the tool."""
        return str(self.fields.get("description") or "")

    @property
    def has_effects(self) -> bool:
        """Whether the tool may change something: yes, unless the server, or the operator, says that it only reads."""
        return not self.only_reads and (self.fields.get("annotations") or {}).get("readOnlyHint") is not True

    @cached_property
    def text(self) -> str:
        """The declaration as JSON, always the same text for the same declaration."""
        return json.dumps(self.fields, sort_keys=True, separators=(",", ":"))

    @cached_property
    def digest(self) -> str:
        """64 hexadecimal digits."""
        return sha256(self.text.encode()).hexdigest()

    def schema(self, source: str | None, server: str | None = None) -> dict[str, Any]:
        """The schema of the activity; `source` labels its results, where there is one (SPEC R16.1), and `server` is the
        name of what it asks (SPEC R6.8).
        """
        given, result = self._schema_of("inputSchema") or {}, self._schema_of("outputSchema")
        if result is not None and self.wraps_result:
            kept = {key: result[key] for key in DEFINITIONS if key in result}
            result = {**result["properties"][_WRAPPED], **kept}
        schema = {key: value for key, value in given.items() if key not in _NOT_OURS}
        output = {} if result is None else {"_output": {k: v for k, v in result.items() if k not in _NOT_OURS}}
        trust = {
            **({"effects": True} if self.has_effects else {}),
            **({"result": [source]} if source is not None else {}),
            **self.said,
        }
        return {
            **schema,
            "type": "object",
            **({"description": self.description} if self.description else {}),
            "properties": {**(given.get("properties") or {}), **output},
            **({TRUST: trust} if trust else {}),
            **({RESOURCE: server} if server is not None else {}),
        }

    @property
    def wraps_result(self) -> bool:
        """Whether the server puts each result into an object of its own, and says so, as FastMCP does."""
        schema = self.fields.get("outputSchema")
        if not isinstance(schema, dict) or schema.get(_WRAPS) is not True:
            return False
        properties = schema.get("properties")
        return isinstance(properties, dict) and isinstance(properties.get(_WRAPPED), dict) and len(properties) == 1

    @property
    def notes(self) -> list[str]:
        """The parts of its schemas that are left out, since they say nothing about values."""
        return [
            f"{key}{place} is left out: it is {json.dumps(part[name])[: limits.SHOWN_TEXT]}"
            for key in _SCHEMAS
            for place, part, name in misfits(self.fields.get(key))
        ]

    def _schema_of(self, key: str) -> Any:
        """A schema of the tool as one of 2020-12, without annotations of wrong types."""
        if self.fields.get(key) is None:
            return None
        schema = copied(modern(self.fields[key]))
        for _, part, name in list(misfits(schema)):
            del part[name]
        return schema

    def problems(self) -> Iterator[str]:
        """The reasons why it cannot be a tool here, in a few words each."""
        if self.fault:
            yield self.fault
            return
        if not _NAME.fullmatch(self.name):
            yield f"the protocol does not allow its name {self.name[:128]!r}"
        if (problem := next(value_problems(dict(self.fields), Limits()), None)) is not None:
            yield f"its declaration is {problem.message}"
            return
        given = self.fields.get("inputSchema")
        if not isinstance(given, dict) or not isinstance(given.get("properties", {}), dict):
            yield "its inputSchema is no JSON Schema of an object"
            return
        if meta := [key for key in (*given, *given.get("properties", {})) if str(key).startswith("_")]:
            yield f"it has a parameter {meta[0][:100]!r}: names that begin with _ are the engine's"
            return
        _, problems = read_tools([], {self.name: self.schema("mcp")})
        yield from (problem.message for problem in problems)
        if not problems and self._speaks_of_the_engine():
            yield "a part of its inputSchema speaks of names that begin with _, which are the engine's"

    def _speaks_of_the_engine(self) -> bool:
        """Whether the server's schema says something of meta-properties, anywhere in it (SPEC R4.1)."""
        given = {key: value for key, value in self._schema_of("inputSchema").items() if key not in _NOT_OURS}
        declared, _ = read_tools([], {self.name: {**given, "type": "object"}})
        tool = declared.tools[self.name]
        return tool.pins or any(map(tool.mentions, WHO))


# Resources and prompts of servers, which are admitted and called as tools that only read.


def context_tools(kinds: Collection[str]) -> Iterator[Declaration]:
    """The tools that list and read what a server has of these kinds: `resources`, `prompts`."""
    text = {"type": "string"}
    if "resources" in kinds:
        yield _reading("list_resources", "resources/list", "List the resources of the server: address, name, kind.", {})
        yield _reading("read_resource", "resources/read", "Read a resource of the server.", {"uri": text})
    if "prompts" in kinds:
        taken = {"name": text, "arguments": {"type": "object", "additionalProperties": text, "default": {}}}
        yield _reading("list_prompts", "prompts/list", "List the prompts of the server, and what each takes.", {})
        yield _reading("get_prompt", "prompts/get", "Fill in a prompt of the server: its messages.", taken)


def _reading(name: str, asks: str, description: str, taken: Mapping[str, Any]) -> Declaration:
    required = [key for key, schema in taken.items() if "default" not in schema]
    schema = {"type": "object", "properties": taken, "required": required, "additionalProperties": False}
    fields = {"name": name, "description": description, "inputSchema": schema, "annotations": {"readOnlyHint": True}}
    return Declaration(fields, asks=asks)


# The file of the tools of MCP servers that an operator has admitted (`ACTS_MCP_ADMITTED`).
#
# It is text, for a repository and for review: a model is shown a tool as it is in this file, whatever the server says
# now.
#
#     {"files": {"read_file": {"name": "read_file", "description": "…", "inputSchema": {…}, "annotations": {…}}}}
#
# An operator may add `"effects": false` to what the server says: the tool only reads. `"_trust"` beside it declares the
# sources of its results, which then have these and not the server's own, and parameters that are content, prove or are
# addresses (SPEC R16.8).

Admitted = Mapping[str, Mapping[str, Declaration]]
"""Server to tool to its admitted declaration."""

_EFFECTS: Final = "effects"
_DECIDING_NOTHING: Final = ("content", "proof", "hosts")

UNSET: Final = "ACTS_MCP_ADMITTED is not set: set it to a file for the tools that are admitted, such as mcp-tools.json"


def read_admitted(settings: Settings) -> Admitted:
    """The admitted tools; none where no file is named, or it does not exist yet. Raises `ActivitiesError`."""
    if settings.mcp_admitted is None:
        return {}
    path = Path(settings.mcp_admitted)
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(server): {str(name): _read(str(server), str(name), fields) for name, fields in tools.items()}
            for server, tools in found.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError, TypeError) as error:
        text = f"{path} is no file of admitted tools (ACTS_MCP_ADMITTED): {error}; `acts mcp admit` writes one"
        raise ActivitiesError(text) from None


def admit(settings: Settings, server: str, tools: Iterable[Declaration], gone: Iterable[str] = ()) -> None:
    """Record that these tools of a server are admitted as they are, and that the names in `gone` are not any more.

    The file is replaced at once, or not at all. Raises `ActivitiesError`.
    """
    if settings.mcp_admitted is None:
        raise ActivitiesError(UNSET)
    known = {name: dict(declared) for name, declared in read_admitted(settings).items()}
    own = known.setdefault(server, {})
    for name in gone:
        own.pop(name, None)
    own.update({tool.name: tool for tool in tools})
    document = {
        name: {tool: _written(declared[tool]) for tool in sorted(declared)}
        for name, declared in sorted(known.items())
        if declared
    }
    path = Path(settings.mcp_admitted)
    try:
        with NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as written:
            written.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        Path(written.name).chmod(0o644)
        Path(written.name).replace(path)
    except OSError as error:
        raise ActivitiesError(f"{path} cannot be written (ACTS_MCP_ADMITTED): {error}") from error


def _written(tool: Declaration) -> dict[str, Any]:
    said = {TRUST: dict(tool.said)} if tool.said else {}
    return {**tool.fields, **({_EFFECTS: False} if tool.only_reads else {}), **said}


def _read(server: str, name: str, fields: object) -> Declaration:
    if not isinstance(fields, dict) or fields.get("name") != name:
        raise ValueError(f"tool {name!r} has no declaration of that name")
    if fields.get(_EFFECTS, False) is not False:
        raise ValueError(f'tool {name!r}: "effects" can only be false; without it the server\'s word counts')
    tool = replace(Declaration.read(fields), only_reads=_EFFECTS in fields)
    if TRUST not in fields:
        return tool
    if (problem := next(_trust_problems(tool, fields[TRUST], server, name, TRUST), None)) is not None:
        raise ValueError(problem)
    return replace(tool, said=fields[TRUST])


def _trust_problems(tool: Declaration, said: Any, *at: str) -> Iterator[Problem]:
    """Problems of the `_trust` that an operator gives an admitted tool."""
    if not isinstance(said, Mapping):
        yield from trust_problems(said, *at)
        return
    if _EFFECTS in said:
        yield Problem(pointer(*at, _EFFECTS), f'is said beside {TRUST}: "effects": false there if the tool only reads')
    if "result" in said and not said["result"]:
        text = 'names no source: write some, or fields, such as {"id": [], "*": ["web"]}, or leave it out'
        yield Problem(pointer(*at, "result"), text)
    yield from trust_problems({**said, _EFFECTS: True}, *at)
    parameters = (tool.fields.get("inputSchema") or {}).get("properties") or {}
    for key in _DECIDING_NOTHING:
        if said.get(key) and not tool.has_effects:
            yield Problem(pointer(*at, key), "says nothing of a tool that only reads: leave it out")
        for name in said.get(key) or ():
            if name not in parameters:
                yield Problem(pointer(*at, key), f"the tool has no parameter {name!r}: name one of its inputSchema")


# Failures of MCP servers: the type of a call's error is the name of one of these classes.


def too_large(most_bytes: int) -> str:
    """The fault of a message beyond the limit, in words."""
    remedy = "have the tool give less, or raise ACTS_LIMIT_CALL_BYTES where workers run"
    return f"more than {most_bytes:,} bytes in one message: {remedy}"


class Origin(Enum):
    """The source of an error, as the transports note it; the number of an error does not show it."""

    SERVER = "the server, in its answer to the request"
    UNFIT = "the transport: there is an answer, and it cannot be taken"
    UNREACHABLE = "the transport: there is no answer, and another attempt may help"
    SESSION_GONE = "the transport: the server no longer knows the session"


class OriginData(dict[str, Any]):
    """The `data` of an error of JSON-RPC, with its origin. No server can send one."""

    def __init__(self, origin: Origin, data: object = None) -> None:
        super().__init__(data if isinstance(data, dict) else {})
        self.origin = origin


class ObservedMessages:
    """The messages of a server as a session reads them; `observe` is called with each of them before."""

    def __init__(self, stream: Any, observe: Callable[[Any], None]) -> None:
        self._stream = stream
        self._observe = observe

    async def __aenter__(self) -> ObservedMessages:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._stream.__aexit__(*raised)

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for item in self._stream:
            self._observe(getattr(item, "message", None))
            yield item

    async def aclose(self) -> None:
        """Read no more."""
        await self._stream.aclose()


class McpError(CallFailed):
    """A failure of an MCP server, and no fault of our code."""


class McpUnavailable(McpError):
    """A server that cannot be started or reached, has ended, or answers no more: another attempt may help."""


class NotAsked(McpUnavailable):
    """A session that has ended before the tool was asked for anything."""


class McpRefused(McpError):
    """A server that answers with an error of the protocol, or not by the protocol."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry=False)


class McpToolFailed(McpRefused):
    """A tool that says that it has failed (`isError`). That is its result: it is not asked again."""


class McpToolChanged(McpRefused):
    """A tool that is not, or not any more, as it was admitted."""


# The answer of a tool of an MCP server, as the value of a call.
#
# Structured content is the value as it is. Texts are a text. Where there is anything else, the value is a list of
# parts: pictures, sounds and files are named there by type, size and digest, and links by their address. Pictures are
# kept as files of the run, other bytes are not. All of it is data: no text in it is a reference (SPEC R2.4).

Keep = Callable[[bytes], Awaitable[str]]
"""Keeps a picture; returns why it is not kept, or nothing."""


async def value_of(answer: Mapping[str, Any], keep: Keep, *, is_wrapped: bool = False) -> Any:
    """The value of a `CallToolResult`; `is_wrapped` as `Declaration.wraps_result` says.

    Raises `McpToolFailed` where the tool says that it has failed.
    """
    blocks = answer.get("content") or ()
    texts = [block["text"] for block in blocks if block.get("type") == "text"]
    if answer.get("isError"):
        raise McpToolFailed("\n".join(texts)[: limits.LONGEST_ERROR] or "the tool has failed and does not say why")
    if (found := answer.get("structuredContent")) is not None:
        return found["result"] if is_wrapped and isinstance(found, dict) and found.keys() == {"result"} else found
    return "\n".join(texts) if len(texts) == len(blocks) else [await _part(block, keep) for block in blocks]


async def value_of_context(asks: str, answer: Mapping[str, Any], keep: Keep) -> Any:
    """The value of an answer to a tool of `context_tools`: a list, the text of a resource, or the messages of a prompt
    with their roles.
    """
    match asks:
        case "resources/list":
            return [_kept(each, ("uri", "name", "description", "mimeType", "size")) for each in answer["resources"]]
        case "prompts/list":
            return [_kept(each, ("name", "description", "arguments")) for each in answer["prompts"]]
        case "resources/read":
            parts = [await _part({"type": "resource", "resource": each}, keep) for each in answer["contents"]]
            return parts[0]["text"] if len(parts) == 1 and "text" in parts[0] else parts
    return [{"role": each["role"], **await _part(each["content"], keep)} for each in answer["messages"]]


async def _part(block: Mapping[str, Any], keep: Keep) -> dict[str, Any]:
    match block.get("type"):
        case "text":
            return {"text": block["text"]}
        case "image" | "audio" as kind:
            own = {"type": kind, **_kept(block, ("mimeType",))}
            return {**own, **await _digested(block["data"], keep if kind == "image" else None)}
        case "resource":
            resource = block["resource"]
            own = {"type": "resource", **_kept(resource, ("uri", "mimeType"))}
            if "blob" not in resource:
                return {**own, "text": resource.get("text", "")}
            is_image = str(resource.get("mimeType")).startswith("image/")
            return {**own, **await _digested(resource["blob"], keep if is_image else None)}
        case "resource_link":
            return {"type": "resource_link", **_kept(block, ("uri", "name", "description", "mimeType", "size"))}
    return {"type": str(block.get("type"))[:100]}


def _kept(block: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: block[key] for key in keys if block.get(key) is not None}


async def _digested(data: str, keep: Keep | None) -> dict[str, Any]:
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return {"bytes": None}
    why = await keep(content) if keep is not None else ""
    return {"bytes": len(content), "sha256": sha256(content).hexdigest(), **({"notKept": why} if why else {})}


# The tools that an MCP server lists, compared with those that are admitted.

State = Literal["admitted", "new", "changed", "gone", "unfit"]


@dataclass(frozen=True)
class ToolAdmission:
    """A tool as the server lists it now, and as it was admitted."""

    server: str
    live: Declaration | None
    admitted: Declaration | None

    @property
    def tool(self) -> Declaration:
        """The declaration of the server now; of a tool that is gone the admitted one."""
        found = self.live or self.admitted
        assert found is not None
        return found

    @property
    def name(self) -> str:
        """The name of the activity."""
        return f"{self.server}.{self.tool.name}"

    @property
    def problems(self) -> list[str]:
        """The reasons why it cannot be admitted."""
        return [] if self.live is None else list(self.live.problems())

    @property
    def state(self) -> State:
        """The state of the tool in one word."""
        if self.live is None:
            return "gone"
        if self.admitted is not None and self.admitted.digest == self.live.digest:
            return "admitted"
        if self.problems:
            return "unfit"
        return "new" if self.admitted is None else "changed"

    @property
    def has_effects(self) -> bool:
        """Whether its calls have effects: as the operator declares now or has declared, else as the server does."""
        is_kept = self.state == "admitted" and self.admitted is not None and self.admitted.only_reads
        return self.tool.has_effects and not is_kept

    @property
    def newly_only_reads(self) -> bool:
        """Whether the operator says now, and did not say before, that it only reads."""
        return self.tool.only_reads and not (self.admitted is not None and self.admitted.only_reads)

    def as_only_reading(self) -> ToolAdmission:
        """The tool, where the operator says now that it only reads: it keeps the sources of its results alone."""
        if self.live is None:
            return self
        said = {key: value for key, value in self.kept.items() if key not in _DECIDING_NOTHING}
        return replace(self, live=replace(self.live, only_reads=True, said=said))

    @property
    def kept(self) -> Mapping[str, Any]:
        """The declarations of the operator that still hold: those of a tool that is as it was admitted."""
        return self.admitted.said if self.admitted is not None and self.state == "admitted" else {}

    @property
    def dropped(self) -> Mapping[str, Any]:
        """The declarations of the operator that are lost where the tool is admitted anew."""
        return self.admitted.said if self.admitted is not None and self.state != "admitted" else {}

    def to_dict(self) -> dict[str, Any]:
        """The document that `acts mcp tools --json` prints."""
        return {
            "name": self.name,
            "state": self.state,
            "effects": self.has_effects,
            **({"trust": dict(self.kept)} if self.kept else {}),
            "digest": self.tool.digest,
            "problems": self.problems,
            "notes": self.tool.notes,
            "declaration": dict(self.tool.fields),
        }


def tool_admissions(
    server: str, live: Mapping[str, Declaration], admitted: Mapping[str, Declaration]
) -> list[ToolAdmission]:
    """The tools of a server that are listed or admitted, by name."""
    return [ToolAdmission(server, live.get(name), admitted.get(name)) for name in sorted({**live, **admitted})]
