"""The source of a submission: a file, or standard input (`-`), read up to the limit and not beyond."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final

import click

from .. import limits
from .options import Failed, option, option_group

if TYPE_CHECKING:
    from ...broker_config import Settings


_ALLOW: Final[Mapping[str, Any]] = {
    "multiple": True,
    "metavar": "NAME",
    "help": "Allow this tool, activity or delegate, and no other, whatever FILE declares; repeatable.",
}
allow_option: Final = click.option("--allow", **_ALLOW)
"""For commands that take a submission (SPEC R4.2a); they receive a tuple of names, empty where all are allowed."""


@dataclass(frozen=True, slots=True)
class Source:
    """A submission, as a command's argument and options name it."""

    file: str
    allow: tuple[str, ...] = option("--allow", **_ALLOW)
    contexts: tuple[str, ...] = option(
        "--context",
        metavar="FILE.jsonl",
        multiple=True,
        help="Add messages to FILE's context, one JSON object in each line; repeatable.",
    )
    inputs: tuple[str, ...] = option(
        "--input",
        metavar="KEY=VALUE",
        multiple=True,
        help="A value of the input, as JSON or as a text; repeatable. FILE may be the name of a workflow.",
    )
    given: tuple[str, ...] = option(
        "--file",
        metavar="NAME=PATH",
        multiple=True,
        help="The picture, PDF or text for a part {type: file, file: NAME} of a message in FILE; repeatable.",
    )

    latent: bool = option(
        "--latent",
        is_flag=True,
        help="Simulate: a model answers the calls, and no code runs; calls with effects, and those that are sent and "
        "forgotten, are recorded.",
    )

    @property
    def allowed(self) -> tuple[str, ...] | None:
        """Tools, activities and delegates that may be called; None is all."""
        return self.allow or None

    def read(self, settings: Settings) -> tuple[Any, Mapping[str, bytes]]:
        """Read the submission, and the files that it names, by their digests. Raises `protocol.Rejected`."""
        return self.decode(self.content(settings), settings)

    def content(self, settings: Settings) -> bytes:
        """Read the file, or the workflow of that name where there is no such file (SPEC R9.4). Raises
        `protocol.Rejected`.
        """
        found = self._workflow(settings)
        return read_source(self.file, settings) if found is None else json.dumps(found).encode()

    def is_workflow(self, settings: Settings) -> bool:
        """Whether FILE is the name of a workflow."""
        return self._workflow(settings) is not None

    def _workflow(self, settings: Settings) -> dict[str, Any] | None:
        """The submission of the workflow with that name, where there is no file of that name; a folder is no file."""
        path = Path(self.file)
        if self.file == "-" or (path.exists() and not path.is_dir()) or not settings.delegates:
            return None
        from ..registry.activities import Registry
        from ..registry.request_definitions import KnownDelegates

        known = KnownDelegates(settings, Registry())
        return known.workflow(self.file) if self.file in known else None

    def decode(self, content: bytes, settings: Settings) -> tuple[Any, Mapping[str, bytes]]:
        """Read a submission and its files from the content of its file. Raises `protocol.Rejected`."""
        from ..client.files import files_of

        value = _with_contexts(decode_submission(content, settings, self.file), self.contexts, settings)
        value = _with_inputs(value, self.inputs)
        value = _with_setting(value, "latent") if self.latent else value
        pairs = [given.partition("=") for given in self.given]
        if wrong := next((given for given, (name, _, path) in zip(self.given, pairs, strict=True) if not path), None):
            raise _refused(f"--file {wrong}: write NAME=PATH, with the name that the submission has")
        files = files_of(settings, {name: path for name, _, path in pairs})
        return files.put_into(value), files.contents


source_options: Final = option_group("source", Source, click.argument("file"))
"""Gives a command the options of `Source`, as `source`."""
optional_source_options: Final = option_group("source", Source, click.argument("file", required=False, default=""))
"""Gives a command the options of `Source`; `file` is empty if none is named."""


def read_submission(file: str, settings: Settings) -> Any:
    """Read and decode a file. Raises `protocol.Rejected`, also for a file that cannot be read."""
    return decode_submission(read_source(file, settings), settings, file)


def read_amendment(file: str, settings: Settings) -> dict[str, Any]:
    """Read an amendment, which must be an object. Raises `protocol.Rejected`."""
    value = read_submission(file, settings)
    if not isinstance(value, dict):
        raise _refused('an amendment must be an object with "calls"')
    return value


def _with_contexts(value: Any, contexts: Iterable[str], settings: Settings) -> Any:
    """Add the messages of files of JSON lines to a submission's context. Raises `protocol.Rejected`."""
    messages = [message for file in contexts for message in _messages(file, settings)]
    if not messages:
        return value
    from ...protocol.plan.submission import shaped

    document, _ = shaped(value)
    if not isinstance(document, dict) or not isinstance(document.get("context", []), list):
        return value  # the check reports what is wrong
    return document | {"context": [*document.get("context", []), *messages]}


def _with_inputs(value: Any, inputs: Iterable[str]) -> Any:
    """Add values of the input to a submission. Raises `protocol.Rejected`."""
    pairs = [given.partition("=") for given in inputs]
    if not pairs:
        return value
    if wrong := next((name or "=" for name, sign, _ in pairs if not (name and sign)), None):
        raise _refused(f"--input {wrong}: write KEY=VALUE")
    from ...protocol.calls.declarations import input_schema, with_input
    from ...protocol.plan.submission import shaped

    document, _ = shaped(value)
    context = document.get("context", []) if isinstance(document, dict) else None
    if not isinstance(context, list) or not all(isinstance(message, dict) for message in context):
        return value  # the check reports what is wrong
    schema = input_schema(context)
    properties = schema.get("properties", {}) if isinstance(schema, dict) else {}
    return with_input(document, {name: _input_value(text, properties.get(name)) for name, _, text in pairs})


def _input_value(text: str, schema: Any) -> Any:
    """Read the value of an option: a text where the input's schema says so, or where it is no JSON."""
    if isinstance(schema, dict) and schema.get("type") == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _with_setting(value: Any, name: str) -> Any:
    """Switch a setting of a submission on."""
    from ...protocol.plan.submission import shaped

    document, _ = shaped(value)
    config = document.get("config") or {} if isinstance(document, dict) else None
    return {**document, "config": {**config, name: True}} if isinstance(config, dict) else value


def _messages(file: str, settings: Settings) -> Iterator[Any]:
    for place, message in read_lines(file, settings):
        if not isinstance(message, dict):
            raise _refused(f"{place}: a line must be one message, a JSON object")
        yield message


def read_lines(file: str, settings: Settings) -> Iterator[tuple[str, Any]]:
    """Yield the values of a file of JSON lines, each with its place (`FILE:LINE`). Raises `protocol.Rejected`."""
    for number, line in enumerate(read_source(file, settings).splitlines(), start=1):
        if line.strip():
            place = f"{_name(file)}:{number}"
            yield place, decode_submission(line, settings, place)


def decode_submission(content: bytes, settings: Settings, file: str) -> Any:
    """Decode what `read_source` has read. Raises `protocol.Rejected`, naming the file."""
    from ...protocol import Problem, Rejected
    from ...protocol.plan.documents import decode
    from ..limits import limits_of

    try:
        return decode(content, limits_of(settings))
    except Rejected as rejected:
        remedy = _OF_FORMATS.get(Path(file).suffix.lower().partition(":")[0], "")
        named = [Problem(problem.pointer, f"{_name(file)}: {problem.message}{remedy}") for problem in rejected.errors]
        raise Rejected(named) from None


_TABLE: Final = "; for a table give --rows FILE.csv --key COLUMN beside the plan: `acts run` runs it once for each row"
_YAML: Final = "; convert YAML to JSON first"
_OF_FORMATS: Final = {".csv": _TABLE, ".tsv": _TABLE, ".yaml": _YAML, ".yml": _YAML}
"""Advice for a file that is no JSON, by the ending of its name."""


def read_source(file: str, settings: Settings) -> bytes:
    """Read a file. Raises `protocol.Rejected` if it cannot be read, or is larger than the limit."""
    limit_bytes = int(settings.limit_submission_bytes)
    name = _name(file)
    try:
        if file == "-":
            if sys.stdin is None:
                raise _refused("standard input is closed: give a FILE")
            return _read_limited(sys.stdin.buffer, limit_bytes, name)
        path = Path(file)
        if path.is_file() and (size := path.stat().st_size) > limit_bytes:
            raise _too_large(name, f"{size} bytes", limit_bytes)
        with path.open("rb") as stream:
            return _read_limited(stream, limit_bytes, name)
    except OSError as error:
        raise _refused(f"{name}: {error.strerror or error}") from error
    except ValueError as error:  # a name with a zero byte
        raise _refused(f"{name}: {error}") from error


def _name(file: str) -> str:
    return "standard input" if file == "-" else file


def _read_limited(stream: BinaryIO, limit_bytes: int, name: str) -> bytes:
    """Read a stream, which may be a pipe without an end, up to the limit."""
    content = bytearray()
    while chunk := stream.read(limits.SOURCE_CHUNK_BYTES):
        content += chunk
        if len(content) > limit_bytes:
            raise _too_large(name, "more bytes", limit_bytes)
    return bytes(content)


def _too_large(name: str, size: str, limit_bytes: int) -> Exception:
    allowed = f"{size} than the {limit_bytes}" if size == "more bytes" else f"{size}, where {limit_bytes}"
    return _refused(f"{name}: {allowed} that ACTS_LIMIT_SUBMISSION_BYTES allows")


def _refused(message: str) -> Exception:
    from ...protocol import Problem, Rejected

    return Rejected([Problem("", message)])


# Writing a file whole or not at all: what was there stays until the last byte of the new one is written.
#
# What is written holds values of runs: a new file is its owner's alone to read, one that was there keeps its mode.


def write_whole(path: Path, parts: Iterable[str]) -> None:
    """Write the parts of a text to a new file that then takes the place of `path`. Raises `Failed`."""
    with writing_whole([path]) as (file,):
        file.writelines(parts)


@contextmanager
def writing_whole(paths: Sequence[Path]) -> Iterator[list[IO[str]]]:
    """Open new files, which take the places of `paths` at the end if all went well. Raises `Failed`."""
    drafts = [path.with_name(f"{path.name}.{os.getpid()}.part") for path in paths]
    at = paths[0]
    try:
        with ExitStack() as stack:
            yield [stack.enter_context(_opened(draft, path)) for draft, path in zip(drafts, paths, strict=True)]
        for draft, at in zip(drafts, paths, strict=True):
            draft.replace(at)
    except OSError as error:
        raise Failed(f"{at}: {error.strerror or error}") from error
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)


def _opened(draft: Path, path: Path) -> IO[str]:
    draft.unlink(missing_ok=True)
    number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, limits.SOURCE_OWN)
    if path.is_file():
        os.fchmod(number, stat.S_IMODE(path.stat().st_mode))
    return os.fdopen(number, "w", encoding="utf-8", errors="surrogatepass")


def make_folder(path: Path) -> None:
    """Make a folder where there is none. Raises `Failed`."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failed(f"{path}: {error.strerror or error}") from error
