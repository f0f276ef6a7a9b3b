"""Files that a model is shown: pictures, documents and texts, given beside a submission and kept beside its log.

A submission names a file (`{"type": "file", "file": "cat.png"}`, a part of a chat message) and never says where it
lies: the submitter gives it, by `files` or in its place, `--file NAME=PATH` on the command line. So what came over a
wire reads no file of anybody.
"""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ...broker_config import Settings
from ...protocol import Plan, Problem, Rejected
from ...protocol.errors import pointer
from ...protocol.messages import file_parts, is_file, picture_type, sent_bytes, with_changed
from ..registry.models import image_size

_KINDS: Final = "PNG, JPEG, GIF, WebP, PDF and texts in UTF-8"
_FORMS: Final = ("image", "application/pdf")
"""The kinds of files whose names have to tell the truth."""


@dataclass(frozen=True, slots=True)
class File:
    """A file that a model is shown: a path, or bytes with a `name`."""

    source: Path | str | bytes
    name: str | None = None

    @property
    def title(self) -> str:
        """Its name, as a model may be shown it."""
        return self.name or (Path(self.source).name if not isinstance(self.source, bytes) else "file")

    def read(self, most_bytes: int) -> bytes:
        """Its bytes. Raises `ValueError` with what is wrong."""
        if isinstance(self.source, bytes):
            size, content = len(self.source), self.source
        else:
            path = Path(self.source)
            try:
                if not path.is_file():
                    raise ValueError(f"{path}: no such file" if not path.exists() else f"{path}: no file")
                size = path.stat().st_size
                content = path.read_bytes() if size <= most_bytes else b""
            except OSError as error:
                raise ValueError(f"{path}: {error.strerror or error}") from error
        if size > most_bytes:
            raise ValueError(f"{self.title}: {size} bytes, where {most_bytes} are allowed (ACTS_LIMIT_FILE_BYTES)")
        return content


Given = File | Path | str | bytes
"""A file: a text is a path."""
Place = tuple[str, Sequence[Any]]
"""Messages, and the pointer to their place."""


@dataclass(slots=True)
class Files:
    """The files of one submission."""

    given: Mapping[str, File] = field(default_factory=dict)
    """The files that it may name, by their names."""
    most_bytes: int = 0
    """The most bytes of one file."""
    contents: dict[str, bytes] = field(default_factory=dict)
    """The files that it names, by their digests."""

    def put_into(self, value: Any) -> Any:
        """A submission in which each part of a chat message that is a file, or names one that was given, says its
        digest. Raises `Rejected` with every file that cannot be taken.
        """
        problems: list[Problem] = []

        def messages(listed: Any, *at: str | int) -> Any:
            if not isinstance(listed, list):
                return listed
            return [self._message(each, problems, (*at, number)) for number, each in enumerate(listed)]

        if not isinstance(value, Mapping):
            found = messages(value)
        else:
            found = dict(value)
            if "context" in found:
                found["context"] = messages(found["context"], "context")
            if isinstance(delegates := found.get("delegates"), Mapping):
                found["delegates"] = {
                    name: {**own, "context": messages(own["context"], "delegates", name, "context")}
                    if isinstance(own, Mapping) and "context" in own
                    else own
                    for name, own in delegates.items()
                }
        if problems:
            raise Rejected(problems)
        return found

    def _message(self, message: Any, problems: list[Problem], at: Sequence[str | int]) -> Any:
        if not isinstance(message, Mapping):
            return message
        numbers = iter(range(len(message.get("content") or ())))

        def changed(part: Any) -> Any:
            number = next(numbers)
            own = part if isinstance(part, File) else self.given.get(part["file"]) if is_file(part) else None
            if own is None:
                return part
            name = part["file"] if is_file(part) else own.title
            try:
                return self._stored(name, own)
            except ValueError as error:
                problems.append(Problem(pointer(*at, "content", number), str(error)))
                return part

        return with_changed(message, changed)

    def _stored(self, name: str, file: File) -> dict[str, Any]:
        """Make the part of a message for a file. Raises `ValueError`."""
        content = file.read(self.most_bytes)
        media_type = _media_type(file.title, content)
        digest = hashlib.sha256(content).hexdigest()
        self.contents[digest] = content
        part = {"type": "file", "file": name, "media_type": media_type, "digest": digest, "bytes": len(content)}
        size = image_size(content) if media_type.startswith("image/") else None
        return {**part, "pixels": [*size]} if size is not None else part


def files_of(settings: Settings, given: Mapping[str, Given] | None = None) -> Files:
    """Files that are given by name."""
    named = {name: each if isinstance(each, File) else File(each, name) for name, each in (given or {}).items()}
    return Files(named, int(settings.limit_file_bytes))


def content_of(part: Any) -> Any:
    """Make a file of a path or bytes in a chat message."""
    return File(part) if isinstance(part, Path | bytes) else part


def require_files(plan: Plan, contents: Mapping[str, bytes], settings: Settings) -> None:
    """Raise `Rejected` where a plan names a file that was not given, or more than one request may have."""
    contexts: list[Place] = [("/context", list(plan.context.messages))]
    delegates = plan.submission.delegates.items()
    contexts += [(f"/delegates/{name}/context", own.get("context", [])) for name, own in delegates]
    require_given(contexts, contents)
    most = int(settings.limit_call_bytes)
    if problems := [problem for each in contexts if (problem := size_problem(*each, most)) is not None]:
        raise Rejected(problems)


def require_given(contexts: Iterable[Place], contents: Mapping[str, bytes]) -> None:
    """Raise `Rejected` for each file that contexts name and that was not given."""
    problems = [
        Problem(where, f"no file {part['file']!r} was given: `--file NAME=PATH`, in Python `files={{NAME: PATH}}`")
        for where, messages in contexts
        for part in file_parts(messages)
        if part.get("digest") not in contents
    ]
    if problems:
        raise Rejected(problems)


def size_problem(where: str, messages: Iterable[Any], most_bytes: int) -> Problem | None:
    """The problem of a request whose files have more bytes than it may have; None where they have not."""
    if (size := sent_bytes(messages)) <= most_bytes:
        return None
    text = f"its files have {size} bytes in base64, where a request may have {most_bytes} (ACTS_LIMIT_CALL_BYTES)"
    return Problem(where, text)


def _media_type(name: str, content: bytes) -> str:
    """The media type of a file, by how it begins. Raises `ValueError` where no model takes it, or its name says
    otherwise.
    """
    found = picture_type(content) or ("application/pdf" if content.startswith(b"%PDF-") else None)
    found = found or ("text/plain" if _is_text(content) else None)
    said = mimetypes.guess_type(name)[0] or ""
    if found is None:
        raise ValueError(f"{name}: models take {_KINDS}, and this is something else")
    if said != found and said.startswith(_FORMS):
        raise ValueError(f"{name}: by its name it is {said}, and it holds {found}")
    return found


def _is_text(content: bytes) -> bool:
    try:
        return bool(content) and "\0" not in content.decode()
    except UnicodeDecodeError:
        return False
