"""Runs one command and outlives the process that asked for it, just long enough to clean up.

A script of its own, standard library only, started by `GuardedProcess` in a session of its own::

    python -I -S guardian.py CONTROL_FD PARENT_PID GRACE_SECONDS DIRECTORY COMMAND...

CONTROL_FD is one end of a socket pair. The guardian writes ``started PID`` or ``failed ERRNO`` to it and then
listens: any byte is a request to stop, and end of file means that the parent is gone, however it died. On
Linux a pidfd says the same even where a stray copy of the parent's end is still open somewhere. Then the
command's process group gets SIGTERM, after the grace SIGKILL, DIRECTORY (may be empty: none) is removed, and
the guardian exits with the command's exit code (128 + N for signal N). It does so too when the command ends
by itself. Should the guardian itself be killed, Linux kills the command.

It starts in a few milliseconds because it imports almost nothing; keep it so.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
COULD_NOT_START = 127


def main(arguments: list[str]) -> int:
    """Guard the command given in `arguments` (see the module) and return its exit code."""
    control_fd, parent, grace_seconds, directory, *command = arguments
    control = socket.socket(fileno=int(control_fd))
    control.set_inheritable(False)
    wakeup = _wake_on_signals()
    code = COULD_NOT_START
    try:
        if directory:
            _make_private(directory)
        pid = _start(command)
        _tell(control, f"started {pid}\n")
        code = _guard(
            pid,
            listen=[control.fileno(), *_watch_parent(int(parent))],
            wakeup=wakeup,
            grace_seconds=float(grace_seconds),
        )
    except OSError as error:
        _tell(control, f"failed {error.errno}\n")
    finally:
        if directory:
            _remove(directory)
    return code


def _guard(pid: int, *, listen: list[int], wakeup: int, grace_seconds: float) -> int:
    """Wait for the command's end or a reason to end it; return its exit code once its whole group is gone."""
    stopping = False
    kill_at: float | None = None
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            # Whatever the command left in its group goes with it.
            _signal_group(pid, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        timeout_ms = None if kill_at is None else max(0, round((kill_at - time.monotonic()) * 1000))
        ready = _readable([wakeup] if stopping else [wakeup, *listen], timeout_ms)
        received = os.read(wakeup, 512) if wakeup in ready else b""
        must_stop = bool({signal.SIGTERM, signal.SIGHUP} & set(received)) or any(fd in ready for fd in listen)
        if must_stop and not stopping:
            stopping = True
            _signal_group(pid, signal.SIGTERM)
            kill_at = time.monotonic() + grace_seconds
        if kill_at is not None and time.monotonic() >= kill_at:
            _signal_group(pid, signal.SIGKILL)
            kill_at = None


def _readable(descriptors: list[int], timeout_ms: int | None) -> list[int]:
    """Wait until one of the descriptors is readable; unlike `select`, numbers above 1,023 are allowed."""
    waiting = select.poll()
    for descriptor in descriptors:
        waiting.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in waiting.poll(timeout_ms)]


def _start(command: list[str]) -> int:
    """Start the command as leader of a group of its own; raise the OSError that exec met, if any."""
    die_with_parent = _prepare_death_signal()
    guardian = os.getpid()
    failure_reader, failure_writer = os.pipe()  # closed by a successful exec
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            die_with_parent()
            if os.getppid() != guardian:
                os._exit(COULD_NOT_START)  # it died before the request above took effect
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            os.execvp(command[0], command)
        except OSError as error:
            os.write(failure_writer, str(error.errno).encode())
        finally:
            os._exit(COULD_NOT_START)
    os.close(failure_writer)
    failure = os.read(failure_reader, 32)
    os.close(failure_reader)
    if failure:
        os.waitpid(pid, 0)
        raise OSError(int(failure), os.strerror(int(failure)), command[0])
    return pid


def _prepare_death_signal() -> Callable[[], object]:
    """Return what a child calls to be killed by Linux when the guardian dies; loaded before the fork."""
    if sys.platform != "linux":
        return lambda: None
    try:
        import ctypes

        libc = ctypes.CDLL(None)
    except (ImportError, OSError):
        return lambda: None
    return lambda: libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _watch_parent(parent: int) -> list[int]:
    """Return a descriptor that becomes readable when the parent ends, where the system has such a thing."""
    if sys.platform != "linux":
        return []
    try:
        descriptor = os.pidfd_open(parent)
    except OSError:
        return []  # no such call here, or the parent is gone already: the control socket tells
    if os.getppid() != parent:
        os.close(descriptor)  # not (any more) our parent: another process may bear its number
        return []
    return [descriptor]


def _wake_on_signals() -> int:
    """Ignore SIGINT, which is for the parent; have the others written to a pipe; return its read end."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return reader


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass  # no process is left (macOS says it with EPERM)


def _make_private(directory: str) -> None:
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass


def _remove(directory: str) -> None:
    import shutil

    shutil.rmtree(directory, ignore_errors=True)


def _tell(control: socket.socket, text: str) -> None:
    try:
        control.sendall(text.encode())
    except OSError:
        pass  # the other end is closed; the loop finds out


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
