"""How many processors this process may use: what it is bound to, and what its control group grants."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_CONTROL_GROUPS: Final = Path("/sys/fs/cgroup")
_OWN_GROUP: Final = Path("/proc/self/cgroup")


def usable_processors() -> int:
    """At least one. A container with a share of a processor counts as one that has it whole."""
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    granted = min(_quotas(_CONTROL_GROUPS, _OWN_GROUP), default=math.inf)
    return max(1, min(bound, math.ceil(granted) if granted < bound else bound))


def _quotas(root: Path, own: Path) -> Iterator[float]:
    """The processors that a control group (version 2) and each above it grant; nothing where none is limited."""
    try:
        lines = own.read_text().splitlines()
    except OSError:  # no Linux
        return
    name = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), None)
    if name is None:
        return
    group = root / name
    for folder in (group, *group.parents):
        try:
            quota, period = (folder / "cpu.max").read_text().split()
        except (OSError, ValueError):  # the root has no such file
            quota, period = "max", ""
        if quota != "max":
            yield int(quota) / int(period)
        if folder == root:
            return
