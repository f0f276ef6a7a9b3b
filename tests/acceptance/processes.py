"""What a command leaves behind: processes found in /proc, waited for by descriptor, and files.

A process belongs to a command when it descends from it, carries the command's marker in its environment, or
holds on to the command's temporary folder by its working directory, its arguments or an open file (a server
that retitles itself wipes its environment; one that detaches itself is nobody's child).
"""

from __future__ import annotations

import os
import select
import time
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class Trace:
    """How the processes of one command are recognised."""

    marker: str
    folder: Path

    @property
    def env(self) -> dict[str, str]:
        """The environment that leaves the trace."""
        return {"ACCEPTANCE_MARK": self.marker, "TMPDIR": str(self.folder)}

    def processes(self, root: int | None = None) -> set[int]:
        """Every living process that belongs to the command; `root` adds its descendants."""
        running = {int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()} - {os.getpid()}
        found = {pid for pid in running if self._marked(pid)}
        if root is not None:
            found |= _descendants(root, running)
        return {pid for pid in found if _state(pid) not in {"", "Z"}}

    def sockets(self) -> list[str]:
        """Unix sockets bound below the command's folder."""
        lines = (PROC / "net" / "unix").read_text().splitlines()
        return [line.split()[-1] for line in lines if str(self.folder) in line]

    def _marked(self, pid: int) -> bool:
        place = PROC / str(pid)
        try:
            if self.marker.encode() in (place / "environ").read_bytes():
                return True
            if str(self.folder).encode() in (place / "cmdline").read_bytes():
                return True
            links = [place / "cwd", *(place / "fd").iterdir()]
            return any(str(link.readlink()).startswith(str(self.folder)) for link in links)
        except OSError:  # it ended while it was looked at, or is not ours to look at
            return False


def listening_ports(processes: set[int]) -> set[int]:
    """The TCP ports these processes listen on."""
    inodes: set[str] = set()
    for pid in processes:
        for link in (PROC / str(pid) / "fd").iterdir():
            target = str(link.readlink())
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
    ports: set[int] = set()
    for table in ("tcp", "tcp6"):
        for line in (PROC / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                ports.add(int(fields[1].rsplit(":", 1)[1], 16))
    return ports


class Watch:
    """Descriptors of living processes, taken while they live so that no reused number is taken for them."""

    def __init__(self, processes: set[int]) -> None:
        self._descriptors: dict[int, int] = {}
        for pid in processes:
            try:
                self._descriptors[os.pidfd_open(pid)] = pid
            except ProcessLookupError:
                continue

    def still_running_after(self, seconds: float) -> set[int]:
        """Wait until all have ended, or until the deadline; the ones that have not."""
        deadline = time.monotonic() + seconds
        waiting = dict(self._descriptors)
        while waiting and (left := deadline - time.monotonic()) > 0:
            ended, _, _ = select.select(list(waiting), [], [], left)
            for descriptor in ended:
                del waiting[descriptor]
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()
        return set(waiting.values())


def _descendants(root: int, running: set[int]) -> set[int]:
    children: dict[int, set[int]] = {}
    for pid in running:
        children.setdefault(_parent(pid), set()).add(pid)
    found, queue = {root}, [root]
    while queue:
        for child in children.get(queue.pop(), set()) - found:
            found.add(child)
            queue.append(child)
    return found


def _status(pid: int) -> list[str]:
    try:
        return (PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []


def _state(pid: int) -> str:
    return (_status(pid) or [""])[0]


def _parent(pid: int) -> int:
    return int((_status(pid) or ["", "0"])[1])
