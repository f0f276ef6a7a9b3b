"""The file in which a worker process writes how it is, for `acts health`. It loads no library."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

_SUFFIX: Final = ".acts-health.json"


@dataclass(frozen=True, slots=True)
class Health:
    """How a worker process is: what is wrong, by what it concerns."""

    worker: str
    pid: int
    problems: dict[str, str]

    def file(self, folder: Path) -> Path:
        """Where it is written."""
        return folder / f"{quote(self.worker, safe='@')}{_SUFFIX}"

    def write(self, folder: Path) -> None:
        """Write it, at once. Raises `OSError`."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self.file(folder)
        draft = file.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(self)), encoding="utf-8")
        draft.replace(file)

    @property
    def is_alive(self) -> bool:
        """Whether the process is there."""
        try:
            os.kill(self.pid, 0)
        except PermissionError:
            return True
        except (OSError, OverflowError):
            return False
        return True


def health_files(folder: Path) -> Iterator[Path]:
    """The files that have the name of one of ours."""
    return (file for file in sorted(folder.glob(f"*{_SUFFIX}")) if file.is_file())


def read_health(file: Path) -> Health:
    """Read a worker's health from its file. Raises `OSError`; `ValueError` where the file is not ours."""
    found: Any = json.loads(file.read_bytes())
    match found:
        case {"worker": str(worker), "pid": int(pid), "problems": dict(problems)} if len(found) == 3 and pid > 0:
            health = Health(worker, pid, {str(what): str(said) for what, said in problems.items()})
            if health.file(file.parent) == file:
                return health
    raise ValueError("it is not what a worker writes")


def remove_dead(folder: Path) -> None:
    """Remove what processes have left there that are dead, and nothing that is not whole and ours. Raises `OSError`."""
    for file in health_files(folder):
        try:
            is_dead = not read_health(file).is_alive
        except (OSError, ValueError, RecursionError):
            continue
        if is_dead:
            file.unlink(missing_ok=True)
