"""A persistent server in the foreground, for a deployment without containers.

``python -m acts_celery.broker_config.server --directory DIR --port N`` becomes (exec) a server on 127.0.0.1 that keeps
its data in an append-only file in DIR. ``--users FILE`` names its users, as ``deploy/redis/users.acl`` does: lines of
Redis in which ``${NAME_SHA256}`` is replaced by the hash of the password in the environment variable
``REDIS_PASSWORD_NAME``. Hashes reach the server on its standard input, passwords not at all.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from .embedded import find_server
from .errors import ServerUnavailable

_HOST = "127.0.0.1"
_SIZE = re.compile(r"\d{1,15}([kmg]?b|[kmg])?", re.ASCII | re.IGNORECASE)
_OPEN = "no password is asked for: every user of this machine can read and change everything; see --users"


def main(arguments: Sequence[str] | None = None) -> int:
    """Become the server that `arguments` describe; return only on an error."""
    options = _parser().parse_args(arguments)
    try:
        binary = find_server()
        users = b"" if options.users is None else _users(options.users.read_text(encoding="utf-8"), os.environ)
        options.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        _hold(options.directory)
        _ask_for_port(options.port)
    except KeyError as error:
        print(f"the environment variable {error.args[0]} is not set", file=sys.stderr)
        return 2
    except ServerUnavailable as error:
        print(error, file=sys.stderr)
        return 3
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)
        return 3
    _read_from_stdin(
        _lines(
            {
                "bind": _HOST,
                "port": str(options.port),
                "dir": str(options.directory.absolute()),
                "daemonize": "no",
                "appendonly": "yes" if options.append_only else "no",
                "appendfsync": options.fsync,
                # The append-only file is the data; without it, nothing is kept.
                "save": "",
                # What is full refuses writes; it forgets no run to make room.
                "maxmemory": options.max_memory,
                "maxmemory-policy": "noeviction",
            }
        )
        + users
    )
    if not users:
        print(_OPEN, file=sys.stderr)
        print(
            f"ACTS_BROKER_URL=redis://localhost:{options.port}/0 finds it; Ctrl-C ends it", file=sys.stderr, flush=True
        )
    os.execv(binary, [str(binary), "-"])


def _hold(directory: Path) -> None:
    """Keep a directory to this process until it ends: two servers would write one append-only file to pieces.

    The lock is the process' own: it outlives `exec`, and no child of the server has it. Raises `ServerUnavailable`.
    """
    lock = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    os.set_inheritable(lock, True)
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ServerUnavailable(
            f"another server keeps its data in {directory}: stop it, or give another --directory"
        ) from None


def _ask_for_port(port: int) -> None:
    """Raise `ServerUnavailable` for a port that cannot be had: the server itself would say so among other lines."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError as error:
            raise ServerUnavailable(
                f"port {port} of {_HOST} cannot be had: {error.strerror}: choose another with --port N"
            ) from None


def _users(text: str, environment: Mapping[str, str]) -> bytes:
    """Write the users with the hashes of their passwords. Raises KeyError with the variable that is missing."""

    def hashed(found: re.Match[str]) -> str:
        name = f"REDIS_PASSWORD_{found[1]}"
        if not environment.get(name):
            raise KeyError(name)
        return hashlib.sha256(environment[name].encode()).hexdigest()

    return re.sub(r"\$\{(\w+)_SHA256\}", hashed, text).encode()


def _lines(directives: dict[str, str]) -> bytes:
    """Write directives as the server reads them, values quoted byte by byte: nothing in them is syntax."""
    lines = []
    for name, value in directives.items():
        quoted = "".join(f"\\x{byte:02x}" for byte in value.encode())
        lines.append(f'{name} "{quoted}"\n')
    return "".join(lines).encode()


def _read_from_stdin(content: bytes) -> None:
    reader, writer = os.pipe()
    os.write(writer, content)  # a few thousand bytes: a pipe holds them without a reader
    os.close(writer)
    os.dup2(reader, 0)
    os.close(reader)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 65_536):
        raise argparse.ArgumentTypeError(f"{text!r} is no port: a number from 1 to 65535")
    return int(text)


def _size(text: str) -> str:
    if not _SIZE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no size: bytes, or such as 500mb or 1gb")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m acts_celery.broker_config.server",
        description="Run a persistent server on 127.0.0.1 in the foreground.",
    )
    parser.add_argument("--directory", type=Path, required=True, help="where the data is kept; made if missing")
    parser.add_argument("--port", type=_port, default=6379, metavar="N", help="default: 6379")
    parser.add_argument(
        "--append-only",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="keep every write in an append-only file (default); without it nothing outlives the server",
    )
    parser.add_argument(
        "--fsync",
        choices=("always", "everysec"),
        default="always",
        help="always (default) loses nothing in a crash; everysec is faster and may lose a second",
    )
    parser.add_argument(
        "--max-memory",
        type=_size,
        default="0",
        metavar="SIZE",
        help="of the data, e.g. 1gb; beyond, writes are refused; default: any",
    )
    parser.add_argument("--users", type=Path, metavar="FILE", help="lines of users; default: no password is asked for")
    return parser


if __name__ == "__main__":
    sys.exit(main())
