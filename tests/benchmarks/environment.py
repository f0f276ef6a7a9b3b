"""The environment of the peers: a folder of its own, made when a benchmark needs it and kept until its list changes."""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_FOLDER: Final = ROOT / ".peers"
_REQUIREMENTS: Final = Path(__file__).with_name("peers") / "requirements.txt"


class NotInstalled(Exception):
    """pip could not install the peers."""


def peers_bin() -> Path:
    """The folder with the peers' commands. Raises `NotInstalled`, again without another attempt."""
    installed = _install()
    if isinstance(installed, NotInstalled):
        raise installed
    return installed


def pinned() -> dict[str, str]:
    """Each peer's version."""
    lines = _REQUIREMENTS.read_text(encoding="utf-8").splitlines()
    pairs = [line.partition("==") for line in lines if not line.startswith("#")]
    return {name.partition("[")[0]: version for name, _, version in pairs}


@cache
def _install() -> Path | NotInstalled:
    wanted = hashlib.sha256(f"{sys.version} {_FOLDER}".encode() + _REQUIREMENTS.read_bytes()).hexdigest()
    stamp, commands = _FOLDER / "installed", _FOLDER / "venv" / "bin"
    _FOLDER.mkdir(exist_ok=True)
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text(encoding="ascii") == wanted:
            return commands
        print("installing the peers into .peers (once; about a minute) …", file=sys.stderr)
        try:
            _run(sys.executable, "-m", "venv", "--clear", str(commands.parent))
            pip = (str(commands / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check")
            _run(*pip, "-r", str(_REQUIREMENTS))
        except NotInstalled as failure:
            return failure
        stamp.write_text(wanted, encoding="ascii")
    return commands


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotInstalled(f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()[-500:]}")
