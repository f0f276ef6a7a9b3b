"""A layer: what `acts doctor` says of one thing between a submission and its result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

LONGEST_ERROR: Final = 200
"""Characters told of an error that is not ours."""


@dataclass(slots=True)
class Layer:
    """What was found in one layer: `remedies` say what to do, one for each problem or warning."""

    layer: str
    detail: str = ""
    ok: bool = True
    remedies: list[str] = field(default_factory=list)

    def fail(self, detail: str, remedy: str) -> None:
        """Note a problem."""
        self.ok = False
        self.warn(detail, remedy)

    def warn(self, detail: str, remedy: str) -> None:
        """Note what may become a problem."""
        self.add(detail)
        self.remedies.append(remedy)

    def add(self, detail: str) -> None:
        """Note a fact."""
        self.detail = f"{self.detail}; {detail}" if self.detail else detail

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        remedy = "; ".join(self.remedies) or None
        return {"layer": self.layer, "ok": self.ok, "detail": self.detail, "remedy": remedy}


@contextmanager
def asked(layer: Layer, remedy: str) -> Iterator[None]:
    """Note whatever a server, or the way to it, raises."""
    try:
        yield
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        layer.fail(text if len(text) <= LONGEST_ERROR else text[: LONGEST_ERROR - 1] + "…", remedy)
