"""The version before this one: the source of the newest release that this checkout came after."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Final

from .server import ROOT

VARIABLE: Final = "ACTS_CHAOS_PREVIOUS"
"""Names another revision than the newest release."""


class NoPrevious(Exception):
    """Why there is no previous version here."""


def unpack_previous(folder: Path) -> str:
    """Write the previous version's source into a folder; returns its name. Raises `NoPrevious`."""
    name = os.environ.get(VARIABLE) or _git("describe", "--tags", "--abbrev=0", "HEAD^").decode().strip()
    with tarfile.open(fileobj=io.BytesIO(_git("archive", name))) as archive:
        archive.extractall(folder, filter="data")
    return name


def _git(*arguments: str) -> bytes:
    try:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=True).stdout
    except FileNotFoundError:
        raise NoPrevious("git is not installed") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        raise NoPrevious(f"no earlier release in this checkout ({said}); {VARIABLE} names a revision") from None
