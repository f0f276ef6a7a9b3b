"""The way into `acts`: its packages are found also where files of their names stand in the way.

A `worker.py` or `protocol.py` of the user's own hides the package where its folder comes first in the search path, as
with `PYTHONPATH=.`. No other package has a module of this one's name.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NoReturn

_PACKAGES: Final = ("broker_config", "protocol", "worker")


def run() -> NoReturn:
    """Run the command that the process was started with, and end with its exit code."""
    claim()
    from worker.__main__ import run as run_command

    run_command()


def claim() -> None:
    """Import those packages of ours that something else would be found in place of."""
    root = Path(__file__).parent.parent
    hidden = [name for name in _PACKAGES if not _is_ours(name, root)]
    if hidden:
        sys.path.insert(0, str(root))
        try:
            for name in hidden:
                import_module(name)
        finally:
            sys.path.remove(str(root))


def _is_ours(name: str, root: Path) -> bool:
    specification = find_spec(name)
    return specification is not None and specification.origin == str(root / name / "__init__.py")
