"""Support: what a submission may ask for by the rules, and a backend of this version cannot do yet (SPEC R7.1).

`check` takes it, so that it can be written, drawn and simulated; making a run of it is refused: a setting that
cannot be honoured is never ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from json import dumps
from typing import Any

from acts_celery.protocol.calls.delegates import declares_tools
from acts_celery.protocol.language.errors import Problem, pointer
from acts_celery.protocol.language.paths import nest

from .config import SETTINGS, settings_of
from .layout import Layout, Promised


def unsupported(plan: Layout, *, is_new: bool = True) -> list[Problem]:
    """What a backend of this version cannot do of a valid submission, each at its place in it.

    The settings of a run were looked at when it was new.
    """
    settings = _settings(plan) if is_new else ()
    return [*settings, *_delegate_settings(plan), *_promises(plan), *_sources(plan)]


def _settings(plan: Layout) -> Iterator[Problem]:
    """Settings of later versions (SPEC R12.7, R13, R14)."""
    for key in settings_of(plan.submission.config):
        if not (SETTINGS[key].in_submission or (SETTINGS[key].in_request and plan.submission.is_request)):
            yield _unsupported(key, "config", key)
    if plan.submission.is_request:
        yield from _idle_slots(plan.submission.config, "config")


def _sources(plan: Layout) -> Iterator[Problem]:
    """What others write and a model would be shown that can call what has effects (SPEC R16.3)."""
    if plan.asked.effects and plan.asked.result:
        named = ", ".join(sorted(plan.asked.result))
        text = f"others write to {named}, and this version cannot keep that from a model that can call what has effects"
        yield Problem("", f"{text}: let a delegate without such tools read it, or leave one of the two out")
    elif plan.submission.is_request and "trust" in settings_of(plan.submission.config):
        yield _unsupported("trust", "config", "trust")


def _delegate_settings(plan: Layout) -> Iterator[Problem]:
    """The same of the definitions of delegates."""
    for name, definition in plan.submission.delegates.items():
        config: Mapping[str, Any] | None = definition.get("config")
        for key in settings_of(config):
            if not (SETTINGS[key].in_definition or (SETTINGS[key].in_request and declares_tools(definition))):
                yield _unsupported(key, "delegates", name, "config", key)
        if declares_tools(definition):
            yield from _idle_slots(config, "delegates", name, "config")


def _idle_slots(config: Mapping[str, Any] | None, *at: str) -> Iterator[Problem]:
    """Slots of a plan that has none."""
    settings = settings_of(config)
    if "slots" in settings and "plan" not in settings:
        text = 'only a staged plan has slots: add "plan": "staged", or leave slots out'
        yield Problem(pointer(*at, "slots"), text)


def _promises(plan: Layout) -> Iterator[Problem]:
    """What is promised and not given, where nothing says how long a run is to wait for it (SPEC R6.3)."""
    for promised in plan.promised if "promise_seconds" not in plan.submission.config else ():
        if promised.needed:
            where = f" of instance {promised.instance!r}" if promised.instance is not None else ""
            message = dumps(_message(promised), ensure_ascii=False)
            yield Problem(
                pointer("context", promised.at),
                f"{promised.place}{where} is promised and has no value: add a message such as {message} to the "
                f"context, or set config.promise_seconds, for which the run waits for it",
            )


def _message(promised: Promised) -> dict[str, Any]:
    instance = {} if promised.instance is None else {"_instance": promised.instance}
    return {"type": "input", **instance, "input": nest("…", promised.place.path)}


def _unsupported(key: str, *at: str) -> Problem:
    return Problem(pointer(*at), f"config.{key} is not supported by this version: leave it out")
