"""Support: what a submission may ask for by the rules, and a backend of this version cannot do yet (SPEC R7.1).

`check` takes it, so that it can be written, drawn and simulated; whoever makes a run of it refuses it: a setting that
cannot be honoured is never ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from protocol.language.errors import Problem, pointer

from .config import SETTINGS, settings_of
from .layout import Layout


def unsupported(plan: Layout) -> list[Problem]:
    """What a backend of this version cannot do of a valid submission, each at its place in it."""
    return list(_settings(plan))


def _settings(plan: Layout) -> Iterator[Problem]:
    """Settings of later versions (SPEC R12.7, R13, R14)."""
    for key in settings_of(plan.submission.config):
        if not SETTINGS[key].in_submission:
            yield _unsupported(key, "config", key)
    for name, definition in plan.submission.delegates.items():
        config: Mapping[str, Any] | None = definition.get("config")
        for key in settings_of(config):
            if not SETTINGS[key].in_definition:
                yield _unsupported(key, "delegates", name, "config", key)


def _unsupported(key: str, *at: str) -> Problem:
    return Problem(pointer(*at), f"config.{key} is not supported by this version: leave it out")
