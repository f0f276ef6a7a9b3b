"""Receipts: what became of the calls of a tick, as a model is told it (SPEC R12.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from acts_celery.protocol.language.visible import one_line


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a call of a tick; `path` is where it has written, or was to write."""

    index: int
    tool: str
    instance: str | None
    fate: str
    path: str | None = None
    reason: str | None = None
    messages: tuple[Mapping[str, Any], ...] = ()
    """What it has written."""


def receipt(fate: Fate) -> str:
    """One line: index, tool, instance, fate, path, reason."""
    instance = f" {one_line(fate.instance)}" if fate.instance is not None else ""
    return f"{fate.index}. {one_line(fate.tool)}{instance}: {ended(fate)}"


def ended(fate: Fate) -> str:
    """How it has ended: fate, path, reason."""
    path = f" → {one_line(fate.path)}" if fate.path is not None else ""
    reason = f" ({one_line(fate.reason)})" if fate.reason else ""
    return f"{fate.fate}{path}{reason}"
