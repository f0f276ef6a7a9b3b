"""Runs the examples of docs/python.md, all in one module: `python -m tests.docs.python_page PAGE`.

What comes before the mark runs without a server of ours; then the environment names one, and a worker that knows what
was registered so far. Tests that the page defines are called with a client.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from acts_celery import Client, local

_PARTS: Final = re.compile(
    r"^```python\n(.*?)^```$|^<!-- from here: a server and a worker -->$", re.MULTILINE | re.DOTALL
)


def run(page: Path) -> None:
    """Run the page. Raises whatever an example raises."""
    text = page.read_text(encoding="utf-8")
    module = sys.modules["page"] = ModuleType("page")
    with ExitStack() as stack:
        client: Client | None = None
        for found in _PARTS.finditer(text):
            if found[1] is None:
                client = stack.enter_context(local())
                os.environ |= client.settings.to_environment()
                continue
            before = "\n" * text.count("\n", 0, found.start(1))  # a traceback names the page's line
            exec(compile(before + found[1], page, "exec"), vars(module))
        for name, test in list[tuple[str, Any]](vars(module).items()):
            if name.startswith("test_"):
                test(client)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
