"""Workers that carry out the same tool with different code (SPEC R17.1)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

_MOST: Final = 5


def differences(code: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[str]:
    """The activities and delegates of which workers have different contracts or versions, a few of them.

    `code` has for each worker what it announces: kind -> name -> [version, digest of the contract].
    """
    known: dict[tuple[str, str], dict[tuple[str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
    for worker, kinds in code.items():
        for kind in ("activities", "delegates"):
            for name, (version, contract) in kinds.get(kind, {}).items():
                known[kind, name][version, contract].append(worker)
    several = [(name, found) for (_, name), found in known.items() if len(found) > 1]
    for name, found in islice(several, _MOST):
        what = "contracts" if len({contract for _, contract in found}) > 1 else "versions"
        listed = (f"{version} ({', '.join(workers[:_MOST])})" for (version, _), workers in islice(found.items(), _MOST))
        yield f"workers have different {what} of {name}: {', '.join(listed)}"
    if len(several) > _MOST:
        yield f"workers have different code of {len(several) - _MOST} more"
