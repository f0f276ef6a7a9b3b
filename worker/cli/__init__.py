"""The `acts` command: a thin shell around `acts_celery.Client` (INTERFACE "Command line").

Exit codes: 0 fine, 1 the run failed or was cancelled, 2 refused before anything ran (a bad submission, option, setting
or activities file), 3 infrastructure or timeout, 4 not possible now, 130 interrupted. Errors go to stderr, one line
each; with `--json` stdout carries machine output and nothing else.

The modules import what is heavy (Celery, jsonschema, rich) inside the commands that need it: `acts --help` and `acts
check` are answered fast.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

from ..errors import Terminated
from .group import acts
from .options import report
from .output import detach_stdout, flush, prepare_streams, tell
from .worker import terminate

__all__ = ["acts", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `acts` with these arguments (those of the process by default) and return its exit code. Never raises."""
    prepare_streams()
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        code = acts.main(args=arguments, prog_name="acts", standalone_mode=False)
        flush()
    except SystemExit as leaving:
        code = _code_of(leaving)
    except BaseException as error:
        code = report(error)
    finally:
        # Whatever could not be written must not be tried once more when the interpreter ends.
        detach_stdout()
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)
    return code if isinstance(code, int) else 0


def _code_of(leaving: SystemExit) -> int:
    if isinstance(leaving, Terminated):
        tell("terminated")
    return leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
