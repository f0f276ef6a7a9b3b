"""Settings: what the `config` of a submission or of a request definition may hold (SPEC R7.1, R11.6, R13, R14).

An unknown key and an unfit value are structural errors; a setting of null counts as left out. `support` has the
settings that a backend of this version cannot honour.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from .. import limits
from ..errors import ExpressionError, Problem, UnknownName, pointer
from ..limits import MOST
from ..messages import Message
from ..paths import type_name
from ..references import is_expression, parse
from ..schemas import schema_problem

_CODE: Final = re.compile(r"ACT\d{3}")
_EFFORT: Final = re.compile(r"[a-z]{1,20}")
_TRUST: Final = {"otherwise": ("hold", "refuse"), "show": ("schema", "value")}


@dataclass(frozen=True, slots=True)
class Setting:
    """The values that a key of `config` takes, and where this version honours it."""

    fits: Callable[[Any], bool]
    shape: str
    in_submission: bool = False
    in_definition: bool = False
    in_request: bool = False
    """In a submission that is a request for the loop (SPEC R12.1)."""


def _is_number(value: Any) -> bool:
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and (isinstance(value, int) or isfinite(value))
    )


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST


def _is_positive(value: Any) -> bool:
    return _is_number(value) and 0 < value <= MOST


def _is_approval(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) and _can_be_approved(each) for each in value)


def _can_be_approved(name: str) -> bool:
    """Whether a name in `config.approve` is a tool's, `*`, or one reference (SPEC R14.1)."""
    if not is_expression(name):
        return bool(name)
    try:
        return len(parse(name).references) == 1
    except ExpressionError:
        return False


def _are_codes(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) and _CODE.fullmatch(each) for each in value)


def _is_trust(value: Any) -> bool:
    return isinstance(value, dict) and all(value[key] in _TRUST.get(key, ()) for key in value)


def _is_seed(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < limits.MOST_SEED


def _is_stop(value: Any) -> bool:
    texts = value if isinstance(value, list) else [value]
    return 0 < len(texts) <= limits.MOST_STOPS and all(isinstance(text, str) and text for text in texts)


_COUNT: Final = (_is_whole, "a whole number, at least 1 and at most a billion")
_SECONDS: Final = (_is_positive, "a number of seconds, more than 0 and at most a billion")

SETTINGS: Final[Mapping[str, Setting]] = {
    "model": Setting(lambda value: isinstance(value, str) and bool(value), "the name of a model", True, True),
    "temperature": Setting(lambda value: _is_number(value) and value >= 0, "a number, at least 0", True, True),
    "top_p": Setting(
        lambda value: _is_positive(value) and value <= 1,
        "a number, more than 0 and at most 1",
        in_submission=True,
        in_definition=True,
    ),
    "seed": Setting(_is_seed, "a whole number of at most 63 bits", True, True),
    "stop": Setting(_is_stop, f"a text, or a list of at most {limits.MOST_STOPS}, none of them empty", True, True),
    "reasoning_effort": Setting(
        lambda value: isinstance(value, str) and bool(_EFFORT.fullmatch(value)),
        'a word of the provider\'s, such as "low", "medium" or "high"',
        in_submission=True,
        in_definition=True,
    ),
    "max_output_tokens": Setting(*_COUNT, in_submission=True, in_definition=True),
    "ticks": Setting(*_COUNT, in_request=True),
    "calls": Setting(*_COUNT, in_request=True),
    "tokens": Setting(*_COUNT, in_request=True),
    "money": Setting(_is_positive, "a number of US dollars, more than 0 and at most a billion", in_request=True),
    "seconds": Setting(*_SECONDS, in_request=True),
    "request_seconds": Setting(*_SECONDS, in_submission=True, in_definition=True),
    "promise_seconds": Setting(*_SECONDS, in_submission=True),
    "approve": Setting(
        _is_approval, 'a list of tool names, references such as "†state.user", or "*"', in_submission=True
    ),
    "approve_seconds": Setting(*_SECONDS, in_submission=True),
    "trust": Setting(
        _is_trust, 'an object with "otherwise" ("hold" or "refuse") or "show" ("schema" or "value")', in_submission=True
    ),
    "unknown": Setting(
        lambda value: value in ("hold", "fail"), '"hold" or "fail"', in_submission=True, in_request=True
    ),
    "mode": Setting(lambda value: value in ("eager", "lazy"), '"eager" or "lazy"', in_submission=True, in_request=True),
    "resolve": Setting(lambda value: value == "upfront", '"upfront"', in_submission=True, in_request=True),
    "goal": Setting(lambda value: value == "state", '"state"', in_request=True),
    "partial": Setting(lambda value: isinstance(value, bool), "true or false", in_submission=True),
    "show": Setting(lambda value: value == "schema", '"schema"', in_request=True),
    "show_bytes": Setting(*_COUNT, in_request=True),
    "latent": Setting(lambda value: isinstance(value, bool), "true or false", in_submission=True),
    "max_concurrency": Setting(*_COUNT, in_submission=True, in_definition=True),
    "ignore": Setting(_are_codes, 'a list of codes of findings such as "ACT103"', in_submission=True),
}
"""Key of `config` -> what it takes."""
SAMPLING: Final = ("temperature", "top_p", "seed", "stop", "reasoning_effort")
"""Settings of how a model writes its answer, sent unchanged to a model that has them (SPEC R13.3)."""


def config_problems(config: Any, *at: str | int) -> Iterator[Problem]:
    """Yield the problems of the `config` of a submission or a request definition (SPEC R7.1)."""
    if config is None:
        return
    if not isinstance(config, dict):
        yield Problem(pointer(*at), "must be an object")
        return
    for key, value in config.items():
        if key not in SETTINGS:
            cause = UnknownName(str(key), tuple(SETTINGS))
            yield Problem(pointer(*at, key), f"unknown setting {key!r}", cause)
        elif value is not None and not SETTINGS[key].fits(value):
            yield Problem(pointer(*at, key), f"must be {SETTINGS[key].shape}")


def settings_of(config: Any) -> dict[str, Any]:
    """The settings that a valid `config` makes: without those left out."""
    return {key: value for key, value in (config or {}).items() if value is not None}


def is_simulation(config: Mapping[str, Any]) -> bool:
    """Whether models answer the calls of a plan, and no code runs (SPEC R12.10)."""
    return config.get("latent") is True


def fails_unknown(config: Mapping[str, Any]) -> bool:
    """Whether a call whose end is not known fails, and no person is asked (SPEC R4.11)."""
    return config.get("unknown") == "fail"


# Advice and versions, which a request can ask for besides calls and an output (SPEC R15).
#
# Each type of message that asks for something has one reader here; `requests.schema` says what a model is shown of it.

ON_REQUEST = "request"
"""The one moment at which advice is asked for: before the calls (SPEC R15.1)."""


@dataclass(frozen=True, slots=True)
class Advisor:
    """An advisor that a request asks: `{"type": "advisor", "id": …, "role": …, "on": "request", "schema": …}`."""

    id: str
    role: str | None
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Meta:
    """The `meta` of which a solution writes a newer version: `{"type": "meta", "meta": {"path", "version", …}}`."""

    value: Mapping[str, Any]
    version: str

    def is_newer(self, version: Any) -> bool:
        """Whether a version is greater. Segments of digits compare as numbers, and zeros at the end do not count."""
        return isinstance(version, str) and version != "" and _segments(version) > _segments(self.version)


def advisors_of(context: Iterable[Message]) -> tuple[Advisor, ...]:
    """The advisors that a valid request asks; the last message of an id counts."""
    advisors = (message for message in context if is_asked(message))
    found = {m["id"]: Advisor(m["id"], _text(m.get("role")), m.get("schema") or {}) for m in advisors}
    return tuple(found.values())


def meta_of(context: Iterable[Message]) -> Meta | None:
    """The newest `meta` of a valid request, None where none is asked for."""
    found = [meta for message in context if (meta := _meta(message)) is not None]
    return Meta(found[-1], found[-1]["version"]) if found else None


def is_asked(message: Message) -> bool:
    """Whether a message is an advisor that is asked with the request; others mean nothing yet."""
    return message.get("type") == "advisor" and message.get("on", ON_REQUEST) == ON_REQUEST


def aside_problems(context: Iterable[Message]) -> Iterator[Problem]:
    """Problems of messages that ask for advice or a version."""
    for index, message in enumerate(context):
        at = ("context", index)
        if is_asked(message):
            yield from _advisor_problems(message, *at)
        elif (meta := _meta(message)) is not None and not (isinstance(meta["version"], str) and meta["version"]):
            text = f"must be a text such as 1.2.0 (found: {type_name(meta['version'])})"
            yield Problem(pointer(*at, "meta", "version"), text)


def _meta(message: Message) -> Mapping[str, Any] | None:
    """The `meta` of a message that asks for a newer version of it."""
    meta = message.get("meta") if message.get("type") == "meta" else None
    return meta if isinstance(meta, Mapping) and "version" in meta else None


def _advisor_problems(message: Message, *at: str | int) -> Iterator[Problem]:
    if not isinstance(message.get("id"), str) or not message["id"]:
        yield Problem(pointer(*at, "id"), "an advisor needs an id, a text")
    if message.get("scopes") is not None:
        yield Problem(pointer(*at, "scopes"), "an advisor sees what the model sees that is asked: leave scopes out")
    if message.get("isInstanced"):
        yield Problem(pointer(*at, "isInstanced"), "advice is given once, for all instances: leave isInstanced out")
    schema = message.get("schema")
    if schema is None:
        return
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        yield Problem(pointer(*at, "schema"), "the schema of an advisor must describe an object")
    elif (problem := schema_problem(schema, *at, "schema")) is not None:
        yield problem


def _segments(version: str) -> tuple[tuple[int, int, str], ...]:
    parts = list(map(_segment, version.split(".")))
    while parts and parts[-1] == (0, 0, ""):
        parts.pop()
    return tuple(parts)


def _segment(part: str) -> tuple[int, int, str]:
    """The sort key of a segment: numbers, however long, come before texts."""
    if not (part.isascii() and part.isdecimal()):
        return 1, 0, part
    digits = part.lstrip("0")
    return 0, len(digits), digits


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
