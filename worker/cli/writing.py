"""Writing a file whole or not at all: what was there stays until the last byte of the new one is written."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from .failures import Failed


def write_whole(path: Path, parts: Iterable[str]) -> None:
    """Write the parts of a text, in a file beside it that then takes its place. Raises `Failed`."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with draft.open("w", encoding="utf-8", errors="surrogatepass") as file:
            file.writelines(parts)
        draft.replace(path)
    except OSError as error:
        raise Failed(f"{path}: {error.strerror or error}") from error
    finally:
        draft.unlink(missing_ok=True)
