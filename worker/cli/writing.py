"""Writing a file whole or not at all: what was there stays until the last byte of the new one is written.

What is written holds values of runs: a new file is its owner's alone to read, one that was there keeps its mode.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Final

from .failures import Failed

_OWN: Final = 0o600


def write_whole(path: Path, parts: Iterable[str]) -> None:
    """Write the parts of a text, in a file beside it that then takes its place. Raises `Failed`."""
    with writing_whole([path]) as (file,):
        file.writelines(parts)


@contextmanager
def writing_whole(paths: Sequence[Path]) -> Iterator[list[IO[str]]]:
    """Files to write texts to, beside those whose places they take at the end, if all went well. Raises `Failed`."""
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
    number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWN)
    if path.is_file():
        os.fchmod(number, stat.S_IMODE(path.stat().st_mode))
    return os.fdopen(number, "w", encoding="utf-8", errors="surrogatepass")


def make_folder(path: Path) -> None:
    """Make a folder where there is none. Raises `Failed`."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failed(f"{path}: {error.strerror or error}") from error
