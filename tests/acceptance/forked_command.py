"""`acts`, as a shell finds it, without the half second that an interpreter takes: `python -S … SOCKET ARGUMENTS…`.

It asks the process that forks (`forks`) over an inherited socket, and ends as the command does.
"""

from __future__ import annotations

import json
import os
import socket
import sys


def main() -> int:
    """Run the command; its exit code, as a shell gives it."""
    reading, writing = os.pipe()
    request = {"arguments": sys.argv[2:], "env": dict(os.environ), "folder": os.getcwd()}  # noqa: PTH109  # no imports
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        socket.send_fds(requests, [json.dumps(request).encode()], [0, 1, 2, writing])
    os.close(writing)
    with open(reading, "rb") as report:  # noqa: PTH123  # a descriptor, no path
        _, code = map(int, report.read().split())
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
