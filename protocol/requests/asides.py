"""Asides: what a model writes before its calls where the context asks for it, `meta` and `advisors` (SPEC R15).

One function composes and one judges each. Nothing of it is executed; it is kept in the solution.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from acts_celery.protocol.language.errors import Problem, pointer
from acts_celery.protocol.schemas import conjuncts
from acts_celery.protocol.schemas.addresses import normalized
from acts_celery.protocol.submission.asides import Advisor, advisors_of, meta_of

from .request import Request
from .widening import Definitions, Widening

_OWN: Final = ("id", "thought", "calls")
"""What every advice has, beside what its advisor's schema says."""
_MOST: Final = 100
"""The highest that an advisor can rate a tool."""


def compose_asides(request: Request, definitions: Definitions) -> Iterator[tuple[str, Any]]:
    """The properties that stand before the calls, in order, with their schemas."""
    for name, (compose, _) in _ASIDES.items():
        if (schema := compose(request, definitions)) is not None:
            yield name, schema


def judge_asides(request: Request, answer: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with them that no schema can say."""
    for name, (_, judge) in _ASIDES.items():
        if name in answer:
            yield from judge(request, answer[name])


def advice_findings(request: Request, answer: Mapping[str, Any]) -> Iterator[str]:
    """Ratings of an advisor that cannot be read: no error, for nothing hinges on them (SPEC R15.1)."""
    listed = answer.get("advisors")
    for advice in listed if isinstance(listed, list) else ():
        if isinstance(advice, dict) and "calls" in advice and not _are_ratings(advice["calls"]):
            yield f"the calls of advisor {advice.get('id')!r} are not JSON of tool to a number from 0 to {_MOST}"


def _are_ratings(text: Any) -> bool:
    try:
        ratings = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return False
    return isinstance(ratings, dict) and all(
        isinstance(rate, int | float) and not isinstance(rate, bool) and 0 <= rate <= _MOST for rate in ratings.values()
    )


def _compose_meta(request: Request, _: Definitions) -> dict[str, Any] | None:
    """The same properties as the newest one has; the version is another."""
    meta = meta_of(request.submission.context)
    if meta is None:
        return None
    properties = {key: {"const": value} if key == "path" else {} for key, value in meta.value.items()}
    properties["version"] = {"type": "string", "description": f"a version greater than {meta.version}"}
    required = [key for key in properties if key in ("path", "version")]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _judge_meta(request: Request, value: Any) -> Iterator[Problem]:
    meta = meta_of(request.submission.context)
    version = value.get("version") if isinstance(value, dict) else None
    if meta is not None and isinstance(version, str) and not meta.is_newer(version):
        text = f"{version!r} is not greater than {meta.version!r}"
        yield Problem(pointer("solution", "meta", "version"), text)


def _compose_advisors(request: Request, definitions: Definitions) -> dict[str, Any] | None:
    """One advice of each advisor."""
    advisors = advisors_of(request.submission.context)
    if not advisors:
        return None
    items = [_advice(advisor, definitions) for advisor in advisors]
    return {"type": "array", "items": {"anyOf": items}, "minItems": len(items), "maxItems": len(items)}


def _advice(advisor: Advisor, definitions: Definitions) -> dict[str, Any]:
    """What an advisor says: data, in which nothing is a reference."""
    document = normalized(advisor.schema)
    writing = Widening(f"advisor.{advisor.id}", document, definitions)
    parts = conjuncts((document,), document)
    own = {key: writing.data(below) for part in parts for key, below in part.get("properties", {}).items()}
    properties = {
        "id": {"const": advisor.id},
        "thought": {"type": "string"},
        **{key: schema for key, schema in own.items() if key not in _OWN},
        "calls": {"type": "string", "description": f'JSON of tool to 0-{_MOST}, such as {{"price": 80}}'},
    }
    required = {name for part in parts for name in part.get("required", ())} | {*_OWN}
    return {
        "type": "object",
        **({"description": advisor.role} if advisor.role is not None else {}),
        "properties": properties,
        "required": [name for name in properties if name in required],
        "additionalProperties": False,
    }


def _judge_advisors(request: Request, value: Any) -> Iterator[Problem]:
    named = [advice.get("id") for advice in value if isinstance(advice, dict)] if isinstance(value, list) else []
    for advisor in advisors_of(request.submission.context):
        if named.count(advisor.id) != 1:
            text = f"advisor {advisor.id!r} is asked once, and advises {named.count(advisor.id)} times"
            yield Problem(pointer("solution", "advisors"), text)


_Compose = Callable[[Request, Definitions], dict[str, Any] | None]
_Judge = Callable[[Request, Any], Iterator[Problem]]
_ASIDES: Final[Mapping[str, tuple[_Compose, _Judge]]] = {
    "meta": (_compose_meta, _judge_meta),
    "advisors": (_compose_advisors, _judge_advisors),
}
"""In the order in which a model writes them (SPEC R12.3)."""
