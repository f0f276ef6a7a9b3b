"""The process in which heavy checks are made; `checking.Validator` begins it.

It says that it is there by an empty line, reads each check as three lines, and answers with one: a list of problems,
each a pointer and a sentence. It ends with the process that began it, however that ends, since its input ends then.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from contextlib import suppress

from ...protocol.schemas.validation import Check, verdict_of
from .. import limits


def main() -> None:
    """Answer until the input ends."""
    os.nice(limits.VALIDATOR_NICENESS)
    with suppress(ValueError, OSError):  # not every system bounds it
        resource.setrlimit(resource.RLIMIT_AS, (limits.VALIDATOR_MEMORY_BYTES, limits.VALIDATOR_MEMORY_BYTES))
    lines = sys.stdin.buffer
    _tell(b"")
    while how := lines.readline().decode():
        check = Check(how, lines.readline().decode(), lines.readline().decode())
        signal.setitimer(signal.ITIMER_PROF, limits.VALIDATOR_SECONDS)  # it ends the process
        problems = [(problem.pointer, problem.message) for problem in verdict_of(check)]
        signal.setitimer(signal.ITIMER_PROF, 0)
        _tell(json.dumps(problems).encode())


def _tell(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()
