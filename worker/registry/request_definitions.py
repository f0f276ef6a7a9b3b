"""Request definitions: delegates that are JSON files under configured folders or web addresses (SPEC R9.1,
`ACTS_DELEGATES`).
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from acts_celery.broker_config import Settings
from acts_celery.protocol.calls.tools import ANONYMOUS, Executor
from acts_celery.protocol.submission.definitions import definition_problems
from acts_celery.protocol.submission.layout import Layout
from acts_celery.worker.errors import WorkerError

from .activities import Registry
from .addresses import is_address, is_below

L = TypeVar("L", bound=Layout)


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
        """The names, of definitions those right in the folders: for hints."""
        yield from self._registry.delegates
        for root in self._roots:
            yield from (path.stem for path in root.glob("*.json"))

    def with_definitions(self, plan: L) -> L:
        """The plan with the definitions that its calls name, and those of a request may, so that they travel with the
        run: it is not touched by what changes there later.
        """
        names = {call.runner.name for call in plan.calls if call.runner.executor is Executor.DELEGATE}
        for tool in plan.submission.tools.values() if plan.submission.is_request else ():
            names |= {name for name in tool.choices("_delegate") if name in self}
        own = plan.submission.delegates
        needed = names - own.keys() - self._registry.delegates.keys() - {ANONYMOUS}
        if not needed:
            return plan
        definitions = {**own, **{name: self._read(name) for name in sorted(needed)}}
        return replace(plan, submission=replace(plan.submission, delegates=definitions))

    def definition(self, name: str) -> Mapping[str, Any] | None:
        """The definition of that name; None where it is code, or there is none."""
        is_code = name in self._registry.delegates or name == ANONYMOUS
        found: Mapping[str, Any] | None = None if is_code or not self._is_defined(name) else self._read(name)
        return found

    def _is_defined(self, name: str) -> bool:
        """Whether a definition may be had under that name; whether one is at an address is not asked here."""
        return is_below(name, self._addresses) if is_address(name) else self._file(name) is not None

    def spelled(self, name: str) -> str | None:
        """The name of the definition that another spelling leads to: a definition is named in one way, so that what is
        said of its name holds (SPEC R16.1).
        """
        found = None if name in self or is_address(name) else self._found(name)
        return found[1] if found is not None else None

    def _file(self, name: str) -> Path | None:
        """The file that a name stands for, inside one of the folders and nowhere else."""
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
            content = self._fetched(name) if path is None else self._content(path)
            definition = json.loads(content)
        except (OSError, ValueError, RecursionError) as error:
            raise WorkerError(f"delegate {name!r}: {path or name} cannot be read as JSON: {error}") from error
        problem = next(definition_problems(definition), None)
        if problem is not None:
            raise WorkerError(f"delegate {name!r}: {path or name}: {problem}")
        return definition

    def _fetched(self, name: str) -> bytes:
        from .remote_definitions import fetched

        return fetched(name, self._most_bytes)

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
