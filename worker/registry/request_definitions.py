"""Request definitions: delegates that are JSON files under configured folders or web addresses (SPEC R9.1,
`ACTS_DELEGATES`).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from http.client import HTTPException
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final, TypeVar
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from ...broker_config import Settings
from ...protocol.calls.declarations import digest_of, is_workflow, workflow_document
from ...protocol.calls.tools import ANONYMOUS, Executor
from ...protocol.calls.trust import OperatorTrust, operator_problems
from ...protocol.errors import Problem, Rejected, Speller, pointer
from ...protocol.limits import WORKFLOWS
from ...protocol.messages import TRUST
from ...protocol.plan.checked_plan import CheckedPlan
from ...protocol.plan.submission import definition_problems, delegates_called
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
