"""Support: what a submission may ask for by the rules, and a backend of this version cannot do yet (SPEC R7.1).

`check` takes it, so that it can be written, drawn and simulated; making a run of it is refused: a setting that
cannot be honoured is never ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from json import dumps
from typing import Any, Final

from acts_celery.protocol.calls.delegates import declares_tools
from acts_celery.protocol.language.errors import Problem, pointer
from acts_celery.protocol.language.messages import Message
from acts_celery.protocol.language.paths import nest
from acts_celery.protocol.state.labels import marks_of
from acts_celery.protocol.trust.effects import shows_untrusted

from .config import SETTINGS, settings_of
from .layout import Layout, Promised

_WORD: Final = re.compile(r"\S{1,64}")


def unsupported(plan: Layout, *, is_new: bool = True) -> list[Problem]:
    """What a backend of this version cannot do of a valid submission, each at its place in it.

    The settings of a run were looked at when it was new.
    """
    settings = (*_settings(plan), *_shown(plan)) if is_new else ()
    return [*settings, *_delegate_settings(plan), *_promises(plan)]


def _settings(plan: Layout) -> Iterator[Problem]:
    """Settings of later versions (SPEC R13, R14)."""
    for key in settings_of(plan.submission.config):
        if not (SETTINGS[key].in_submission or (SETTINGS[key].in_request and plan.submission.is_request)):
            yield _unsupported(key, "config", key)


def _shown(plan: Layout) -> Iterator[Problem]:
    """What a model is shown of what others write, where that cannot be as it is asked (SPEC R16.3)."""
    config, is_request = plan.submission.config, plan.submission.is_request
    if not is_request and "show" in (config.get("trust") or {}):
        text = "says what a request's model is shown, and this is none: leave it out"
        yield Problem(pointer("config", "trust", "show"), text)
    hides = plan.asked.effects and plan.asked.result and not shows_untrusted(config)
    if is_request and hides:
        yield from told_names(plan.submission.context, "context")


def told_names(messages: Sequence[Message], *at: str | int) -> Iterator[Problem]:
    """The names of instances and kinds that only data of others has, and that may be sentences: a model is told them
    that is not shown the data (SPEC R16.3).
    """
    for key, what in (("_instance", "an instance"), ("kind", "a kind")):
        own = {message.get(key) for message in messages if not marks_of(message)}
        for position, message in enumerate(messages):
            name = message.get(key)
            if isinstance(name, str) and name not in own and not _WORD.fullmatch(name):
                text = f"a model is told the name of {what}, also where it is not shown the data: write it as one word"
                yield Problem(pointer(*at, position, key), text)


def _delegate_settings(plan: Layout) -> Iterator[Problem]:
    """The same of the definitions of delegates."""
    for name, definition in plan.submission.delegates.items():
        config: Mapping[str, Any] | None = definition.get("config")
        for key in settings_of(config):
            if not (SETTINGS[key].in_definition or (SETTINGS[key].in_request and declares_tools(definition))):
                yield _unsupported(key, "delegates", name, "config", key)


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
