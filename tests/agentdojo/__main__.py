"""`python -m tests.agentdojo`: the figures of docs/trust.md, as JSON. Without any model."""

from __future__ import annotations

import json
import sys

from .figures import all_figures
from .suites import NotInstalled


def main() -> int:
    """Print the figures."""
    try:
        print(json.dumps(all_figures(), indent=2, ensure_ascii=False))
    except NotInstalled as failure:
        print(f"{failure}\nIt needs a package index, once.", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
