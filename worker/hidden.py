"""Files of the user's own that hide our packages: a `protocol.py` beside a script, for example."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

_PACKAGES: Final = ("protocol", "broker_config")


def in_the_way() -> str | None:
    """A sentence that names the file in the way and the way out; None where there is none."""
    root = Path(__file__).parent.parent
    for name in _PACKAGES:
        module = sys.modules.get(name)
        specification = find_spec(name) if module is None else None
        found = getattr(module, "__file__", None) or (specification.origin if specification is not None else None)
        if found is not None and Path(found).resolve() != (root / name / "__init__.py").resolve():
            return (
                f"{found} is in the way: it hides the package {name!r} of acts-celery; rename it, or start with `acts` "
                "or `python -P`, which do not look there first"
            )
    return None
