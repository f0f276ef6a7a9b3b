"""Request definitions: delegates that are JSON files under configured folders or web addresses (SPEC R9.1,
`ACTS_DELEGATES`).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final, TypeVar
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from ...broker_config import Settings
from ...protocol.calls.declarations import digest_of, is_workflow, workflow_document
from ...protocol.calls.meta_properties import RESULT
from ...protocol.calls.tools import ANONYMOUS, Executor
from ...protocol.calls.trust import NOTHING, SUGGESTED, OperatorTrust, ToolTrust, operator_problems
from ...protocol.errors import Problem, Rejected, Speller, pointer
from ...protocol.limits import WORKFLOWS
from ...protocol.messages import TRUST
from ...protocol.plan.checked_plan import CheckedPlan
from ...protocol.plan.submission import definition_problems, delegates_called
from ...protocol.schemas.walk import referred
from .. import limits
from ..errors import ActivitiesError, WorkerError
from ..store.definition import digest_of_plan
from .activities import Registry

# Web addresses of request definitions: only those below configured ones (SPEC R9.1).
#
# An address is taken as it is written or not at all: one that could lead elsewhere - by `..`, escapes, a query, a user,
# another host or port - is refused.

_PLAIN: Final = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?")


def is_address(name: str) -> bool:
    """Whether a name, or a root, is a web address."""
    return name.startswith(("http://", "https://"))


def is_below(name: str, roots: Sequence[str]) -> bool:
    """Whether an address names a JSON file below one of the roots."""
    if not _PLAIN.fullmatch(name) or not name.endswith(".json"):
        return False
    asked = urlsplit(name)
    found = (urlsplit(root if root.endswith("/") else f"{root}/") for root in roots)
    return any(
        (asked.scheme, asked.netloc) == (root.scheme, root.netloc) and asked.path.startswith(root.path)
        for root in found
    )


L = TypeVar("L", bound=CheckedPlan)


class KnownDelegates(Container[str]):
    """The delegates that a call may name: registered code, and definitions under the configured folders."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._roots = [Path(folder) for folder in settings.delegates if not is_address(folder)]
        self._addresses = [address for address in settings.delegates if is_address(address)]
        self._most_bytes = int(settings.limit_message_bytes)
        self._registry = registry

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._registry.delegates or self._is_defined(name))

    def __iter__(self) -> Iterator[str]:
        """The names for hints: of code, and of definitions that lie right in the folders."""
        yield from self._registry.delegates
        for root in self._roots:
            yield from (path.stem for path in root.glob("*.json"))

    def with_definitions(self, plan: L) -> L:
        """The plan with the definitions that its calls name, or calls of its request may name. They travel with the
        run, which later changes of the files do not touch; so do those that calls of its workflows name (SPEC R9.4).
        Raises `Rejected` for very many workflows.
        """
        names = {call.runner.name for call in plan.calls if call.runner.executor is Executor.DELEGATE}
        for tool in plan.submission.tools.values() if plan.submission.is_request else ():
            names |= {name for name in tool.choices("_delegate") if name in self}
        own = plan.submission.delegates
        definitions, left, seen = dict(own), sorted(names), set[str]()
        workflows = sum(map(is_workflow, own.values()))
        while left and workflows <= WORKFLOWS:
            name = left.pop(0)
            if name in seen or (name not in own and (name in self._registry.delegates or name == ANONYMOUS)):
                continue
            seen.add(name)
            if name not in own:
                definitions[name] = self._read(name)
                workflows += is_workflow(definitions[name])
            if is_workflow(definitions[name]):
                left += (one for one in delegates_called(definitions[name]) if one in own or one in self)
        if workflows > WORKFLOWS:
            text = f"has more than {WORKFLOWS} workflows, with those that they call: put the calls of some into one"
            raise plan.submission.shape.rejected([Problem(pointer("delegates"), text)])
        if len(definitions) == len(own):
            return plan
        return replace(plan, submission=replace(plan.submission, delegates=definitions))

    def definition(self, name: str) -> Mapping[str, Any] | None:
        """The definition of that name; None where the name is code, or unknown."""
        is_code = name in self._registry.delegates or name == ANONYMOUS
        found: Mapping[str, Any] | None = None if is_code or not self._is_defined(name) else self._read(name)
        return found

    def workflow(self, name: str, own: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The submission of the workflow with that name (SPEC R9.4); `own` are definitions that are searched first.
        Raises `Rejected` where there is none.
        """
        found = (own or {}).get(name) or self.definition(name)
        if found is None:
            text = f"no workflow is named {name!r}: put its definition into a folder of ACTS_DELEGATES, as {name}.json"
            raise Rejected([Problem("", text + Speller().hint(name, tuple(self)))])
        if not is_workflow(found):
            text = f"delegate {name!r} is no workflow, since a model answers it: call it, or give it a solution"
            raise Rejected([Problem("", text)])
        return workflow_document(found)

    def named(self) -> list[str]:
        """The names of the definitions in the folders, sorted; of very many some."""
        found = set[str]()
        for root in self._roots:
            folder = root.resolve()
            paths = (path for path in folder.rglob("*.json") if path.suffix == ".json")
            for path in islice(paths, limits.MOST_DEFINITIONS - len(found)):
                found.add(path.relative_to(folder).as_posix().removesuffix(".json"))
        return sorted(name for name in found if name in self)

    def _is_defined(self, name: str) -> bool:
        """Whether a file has that name, or it is an address that may have a definition: nothing is fetched here."""
        return is_below(name, self._addresses) if is_address(name) else self._file(name) is not None

    def spelled(self, name: str) -> str | None:
        """The name of the definition that another spelling leads to: a definition has one name, so that rules for that
        name hold (SPEC R16.1).
        """
        found = None if name in self or is_address(name) else self._found(name)
        return found[1] if found is not None else None

    def _file(self, name: str) -> Path | None:
        """The file of a name, inside one of the folders and nowhere else."""
        found = self._found(name)
        return found[0] if found is not None and found[1] == name else None

    def _found(self, name: str) -> tuple[Path, str] | None:
        """The file that a text leads to, and its name: its path in the first folder that holds it, without `.json`."""
        folders = [root.resolve() for root in self._roots]
        for candidate in (f"{name}.json", name):
            for folder in folders:
                try:
                    path = (folder / candidate).resolve()
                    if path.is_relative_to(folder) and path.suffix == ".json" and path.is_file():
                        first = next(one for one in folders if path.is_relative_to(one))
                        return path, _as_listed(path, first).removesuffix(".json")
                except (OSError, ValueError):
                    continue  # too long, or a null byte: no file can have that name
        return None

    def _read(self, name: str) -> Any:
        assert self._is_defined(name)
        path = None if is_address(name) else self._file(name)
        try:
            definition = json.loads(fetched(name, self._most_bytes) if path is None else self._content(path))
        except (OSError, ValueError, RecursionError) as error:
            raise WorkerError(f"delegate {name!r}: {path or name} cannot be read as JSON: {error}") from error
        problem = next(definition_problems(definition), None)
        if problem is not None:
            raise WorkerError(f"delegate {name!r}: {path or name}: {problem}")
        return definition

    def _content(self, path: Path) -> bytes:
        with path.open("rb") as file:
            content = file.read(self._most_bytes + 1)
        if len(content) > self._most_bytes:
            raise ValueError(f"it has more than {self._most_bytes} bytes (ACTS_LIMIT_MESSAGE_BYTES)")
        return content


def _as_listed(path: Path, folder: Path) -> str:
    """The path of a file in a folder as the system lists it: some find a file by capital letters, too."""
    found = folder
    for part in path.relative_to(folder).parts:
        names = [entry.name for entry in found.iterdir()]
        found /= part if part in names else next(name for name in names if name.casefold() == part.casefold())
    return found.relative_to(folder).as_posix()


# Request definitions at web addresses, of a bounded size and time; no redirect is followed (SPEC R9.1).


def fetched(address: str, most_bytes: int) -> bytes:
    """The content at an address that `is_below` has admitted. Raises `WorkerError`."""
    deadline = time.monotonic() + limits.REQUEST_DEFINITIONS_TIMEOUT_SECONDS
    try:
        request = Request(address, headers={"Accept": "application/json"})  # noqa: S310 - `is_below` admits http only
        with build_opener(_NoRedirect).open(request, timeout=limits.REQUEST_DEFINITIONS_TIMEOUT_SECONDS) as answer:
            found = b""
            while len(found) <= most_bytes and (piece := answer.read1(limits.PIECE_BYTES)):
                found += piece
                if time.monotonic() > deadline:
                    raise TimeoutError(f"it did not end in {limits.REQUEST_DEFINITIONS_TIMEOUT_SECONDS:g} s")
    except (URLError, HTTPException, OSError, ValueError) as error:
        raise WorkerError(f"delegate {address!r} cannot be had: {error}") from error
    if len(found) > most_bytes:
        raise WorkerError(f"delegate {address!r} has more than {most_bytes} bytes (ACTS_LIMIT_MESSAGE_BYTES)")
    return found


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirect: its status is raised as an error."""

    def redirect_request(self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str) -> None:
        """Make no other request."""


# The operator's file of trust in tools (`ACTS_TRUST`, SPEC R16.1).


def operator_trust(settings: Settings) -> OperatorTrust:
    """The operator's trust in tools; none where no file is named. Raises `ActivitiesError`, also for a missing file:
    labels that somebody relies on are not lost in silence.
    """
    if settings.trust is None:
        return OperatorTrust()
    path = Path(settings.trust)
    try:
        with path.open("rb") as file:
            content = file.read(limits.TRUST_FILE_BYTES + 1)
        if len(content) > limits.TRUST_FILE_BYTES:
            text = f"has more than {limits.TRUST_FILE_BYTES} bytes: a * at the end of a name helps"
            raise ActivitiesError(f"{path} (ACTS_TRUST) {text}")
        document = json.loads(content)
    except (OSError, ValueError, RecursionError) as error:
        raise ActivitiesError(f"{path} (ACTS_TRUST) cannot be read as JSON: {error}") from None
    if (problem := next(operator_problems(document), None)) is not None:
        raise ActivitiesError(f"{path} (ACTS_TRUST): {problem}")
    delegates = KnownDelegates(settings, Registry())
    for name in document:
        if (spelled := delegates.spelled(name)) is not None:
            raise ActivitiesError(f"{path} (ACTS_TRUST): {pointer(name)} is written {spelled!r}")
    return OperatorTrust.read(document)


def digest_of_trust(settings: Settings) -> str:
    """A digest of the operator's file; empty where none is named. Raises `ActivitiesError`."""
    trust = operator_trust(settings).to_dict()
    return digest_of(json.dumps(trust, sort_keys=True).encode()) if trust else ""


def doubts(settings: Settings, registry: Registry) -> Iterator[str]:
    """Warnings about parts of the file that may be mistakes. Raises `ActivitiesError`."""
    trust, delegates = operator_trust(settings), KnownDelegates(settings, registry)
    for name in trust.unknown((*registry.activities, *delegates)):
        text = "which is no activity and no delegate here: it counts for tools that submissions declare under that name"
        yield f"ACTS_TRUST speaks of {name!r}, {text}"
    for name, activity in registry.activities.items():
        own, here = activity.schema.get(TRUST) or {}, trust.of(name)
        if not own.get("effects"):
            continue
        content = own.get("content", ())
        if here.effects and (lost := [one for one in content if one not in here.content]):
            text = f"has effects and does not call {lost[0]!r} content, as its code does: it decides"
            yield f"ACTS_TRUST says that {name!r} {text}"
        if added := sorted(here.content.difference(content)):
            text = "and its code does not: it decides all the same, for nothing takes away what code says"
            yield f"ACTS_TRUST calls {added[0]!r} of {name!r} content, {text}"


# Plans that were approved for all their runs: listed by the operator (`ACTS_APPROVED_PLANS`), or by people (SPEC R9.5).

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def listed_plans(settings: Settings) -> frozenset[str]:
    """The digests in the operator's file, or in the files of the folder; one a line, with comments behind `#`. Raises
    `ActivitiesError`, also for a missing file: a list that somebody relies on is not lost in silence.
    """
    if settings.approved_plans is None:
        return frozenset()
    path, found = Path(settings.approved_plans), set[str]()
    try:
        files = sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else [path]
        for file in files:
            with file.open("rb") as content:
                text = content.read(limits.TRUST_FILE_BYTES + 1)
            if len(text) > limits.TRUST_FILE_BYTES:
                raise ActivitiesError(f"{file} (ACTS_APPROVED_PLANS) has more than {limits.TRUST_FILE_BYTES} bytes")
            for number, line in enumerate(text.decode().splitlines(), start=1):
                digest = line.partition("#")[0].strip()
                if digest and not _DIGEST.fullmatch(digest):
                    text_ = "write the 64 hexadecimal digits that `acts held --json` gives as sha256"
                    raise ActivitiesError(f"{file}:{number} (ACTS_APPROVED_PLANS) is no digest of a plan: {text_}")
                found |= {digest} if digest else set()
    except (OSError, UnicodeDecodeError) as error:
        raise ActivitiesError(f"{path} (ACTS_APPROVED_PLANS) cannot be read: {error}") from None
    return frozenset(found)


def with_approval(plan: L, settings: Settings, is_approved: Callable[[str], bool]) -> L:
    """Approve a plan whose digest the operator lists, or people approved for all its runs (`is_approved`). Raises
    `ActivitiesError`.
    """
    if not plan.waits_for_approval:
        return plan
    digest = digest_of_plan(plan)
    return replace(plan, is_approved=True) if digest in listed_plans(settings) or is_approved(digest) else plan


# Suggestions for that file, each label with its reason, for a person to review (`acts trust suggest`).
#
# Names, schemas, annotations of MCP servers and recorded results are hints. So each entry is marked as suggested, and a
# file with such an entry is refused (see `operator_problems`) until somebody has read it and removed the mark.

_ACTING: Final = re.compile(
    "add|append|approve|assign|book|buy|cancel|charge|close|commit|confirm|create|delete|deploy|edit|insert"
    "|invite|merge|move|notify|order|pay|place|post|publish|put|push|refund|reject|remove|rename|reply"
    "|reschedule|reserve|schedule|send|set|share|start|stop|submit|subscribe|transfer|update|upload|write"
)
"""The verbs with which the names of tools begin that change something."""
_READING: Final = re.compile("browse|check|download|fetch|find|get|list|load|look|open|query|read|search|show|view")
_FOREIGN: Final[Mapping[str, str]] = {
    **dict.fromkeys(("mail", "email", "inbox"), "mail"),
    **dict.fromkeys(("chat", "channel", "message", "dm"), "chat"),
    **dict.fromkeys(("comment", "review", "rating", "feedback"), "reviews"),
    **dict.fromkeys(("issue", "ticket", "pull", "request"), "tickets"),
    **dict.fromkeys(("page", "web", "webpage", "website", "url", "html", "site", "feed"), "web"),
    **dict.fromkeys(("file", "document", "attachment", "invoice", "bill"), "files"),
    **dict.fromkeys(("event", "calendar", "meeting"), "calendar"),
}
"""The things that others write, as names of tools call them, and the source of each."""
_OTHERS: Final = re.compile("author|body|comment|content|description|from|message|review|sender|subject|text|title")
"""The fields of results that others write as a rule."""
_TEXTS: Final = re.compile("body|comment|message|note|reason|subject|summary|text")
"""The parameters that are texts for people as a rule."""
_ID: Final = re.compile(r"(.*_)?id_?|number|uuid")
_WORD_OF_A_NAME: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


@dataclass(frozen=True)
class KnownTool:
    """What is known of a tool."""

    name: str
    schema: Mapping[str, Any]
    said: ToolTrust = NOTHING
    """The trust that its code and the operator have declared."""
    annotations: Mapping[str, Any] = field(default_factory=dict)
    """The hints of its MCP server."""
    results: Sequence[Any] = ()
    """Results of recorded calls."""

    @property
    def words(self) -> list[str]:
        """The words of its name, without that of its server."""
        return [word.lower() for word in _WORD_OF_A_NAME.findall(self.name.rpartition(".")[2])]

    @property
    def verb(self) -> str:
        """The word with which its name begins."""
        return next(iter(self.words), "")

    @property
    def may_only_read(self) -> bool:
        """Whether the tool acts only because its MCP server says nothing of that, while its name says that it reads."""
        is_unsaid = "." in self.name and self.said.effects and self.annotations.get("readOnlyHint") is None
        return is_unsaid and _READING.fullmatch(self.verb) is not None

    @property
    def texts(self) -> list[str]:
        """The parameters that are texts for people, by their names."""
        properties = self.schema.get("properties", {})
        return [name for name in properties if _TEXTS.fullmatch(name) and properties[name].get("type") == "string"]


def suggestion(tool: KnownTool) -> dict[str, Any]:
    """The entry for a tool in an operator's file, with its reasons; empty where nothing says anything."""
    found = dict[str, tuple[Any, str]]()
    acts = _ACTING.fullmatch(tool.verb) is not None
    if acts and not tool.said.effects:
        found["effects"] = True, f"its name begins with {tool.verb!r}: does it change something outside?"
        if texts := tool.texts:
            found["content"] = texts, "texts for people, by their names: does no program act on them?"
    if tool.said.effects and tool.annotations.get("idempotentHint") is False and not tool.said.once:
        found["once"] = True, "its MCP server says that two calls do more than one (idempotentHint)"
    if not acts and not tool.said.result and (written := _written(tool)) is not None:
        found["untrusted"] = written
    if not found:
        return {}
    return {key: value for key, (value, _) in found.items()} | {
        SUGGESTED: {key: why for key, (_, why) in found.items()}
    }


def _written(tool: KnownTool) -> tuple[Any, str] | None:
    """The sources of a tool's results, by field where some of these are numbers of the service, and the reason."""
    fields = dict(_fields(tool))
    names = {path.rpartition(".")[2] for path in fields}
    thing = next((word for word in tool.words if word in _FOREIGN or word.removesuffix("s") in _FOREIGN), None)
    if thing is not None:
        source, why = _FOREIGN.get(thing) or _FOREIGN[thing.removesuffix("s")], f"its name has {thing!r} in it"
    elif others := sorted(filter(_OTHERS.fullmatch, names)):
        source, why = tool.words[-1], f"its results have {', '.join(map(repr, others))}"
    else:
        return None
    own = sorted(path for path, is_number in fields.items() if is_number and _ID.fullmatch(path.rpartition(".")[2]))
    recorded = f", also in recorded results ({len(tool.results)})" if tool.results else ""
    why = f"{why}{recorded}: do others write it?"
    if not own:
        return [source], why
    said = f"{why} The service numbers {', '.join(own)}, by the name: can nobody else choose it?"
    return {**{path: [] for path in own}, "*": [source]}, said


def _fields(tool: KnownTool) -> Iterator[tuple[str, bool]]:
    """The fields of a tool's results as paths, and whether each is a number, by its schema and by recorded results."""
    whole = tool.schema.get("properties", {}).get(RESULT, {})
    schema, path = (whole.get("items"), "*.") if whole.get("type") == "array" else (whole, "")
    if isinstance(schema, Mapping) and "$ref" in schema:
        schema = referred(schema["$ref"], whole)
    for name, one in (schema.get("properties") or {}).items() if isinstance(schema, Mapping) else ():
        yield f"{path}{name}", one.get("type") == "integer"
    for result in tool.results:
        elements, path = (result, "*.") if isinstance(result, list) else ([result], "")
        for element in elements:
            for name, value in element.items() if isinstance(element, Mapping) else ():
                yield f"{path}{name}", isinstance(value, int)


def known_tools(settings: Settings, known: Registry, results: Mapping[str, Sequence[Any]]) -> Iterator[KnownTool]:
    """The registered tools, with what is declared of each. Raises `ActivitiesError`."""
    from .mcp_tools import read_admitted

    operator = operator_trust(settings)
    hints = {
        f"{server}.{name}": tool.fields.get("annotations") or {}
        for server, tools in read_admitted(settings).items()
        for name, tool in tools.items()
    }
    for name, schema in known.schemas().items():
        said = ToolTrust.together((ToolTrust.read(schema.get(TRUST, {})), operator.of(name)))
        yield KnownTool(name, schema, said, hints.get(name, {}), results.get(name, ()))
