"""What code returns, made fit to travel: JSON values only, within the limits."""

from __future__ import annotations

from typing import Any, Final

from pydantic_core import PydanticSerializationError, to_jsonable_python

from acts_celery.protocol import Limits, Message, Output
from acts_celery.protocol.language.limits import value_problems
from acts_celery.worker.errors import CallFailed
from acts_celery.worker.wire.packing import pack

_PLAIN: Final = (str, int, float, bool, type(None))


def to_json_value(value: Any, limits: Limits) -> Any:
    """The value as JSON values: models, dataclasses, dates, tuples and sets become what pydantic makes of them.

    An `Output` or a `Message` stays one. Raises `CallFailed` where that cannot be: not serialisable, too deep, too
    large, a number that msgpack cannot hold.
    """
    if isinstance(value, Output):
        return Output(value.path, to_json_value(value.value, limits))
    if isinstance(value, Message):
        content = to_json_value(value.content, limits)
        if not isinstance(content, dict):
            raise CallFailed("the result is a Message that is no object", retry=False)
        return Message(content)
    if not isinstance(value, _PLAIN):
        try:
            value = to_jsonable_python(value, inf_nan_mode="constants")
        except PydanticSerializationError as error:
            raise CallFailed(
                f"the result is not JSON: {error}; return texts, numbers, lists, objects, dataclasses or models",
                retry=False,
            ) from error
        except UnicodeDecodeError as error:
            raise CallFailed("the result holds bytes that are no UTF-8 text: JSON has no bytes", retry=False) from error
        except (RecursionError, ValueError) as error:
            raise CallFailed(f"the result is nested too deeply or in a circle: {error}", retry=False) from error
    problem = next(value_problems(value, limits), None)
    if problem is not None:
        raise CallFailed(f"the result is not JSON: {_at(problem.pointer)}{problem.message}", retry=False)
    if (size := len(pack(value))) > limits.message_bytes:
        raise CallFailed(
            f"the result has {size} bytes, where {limits.message_bytes} are allowed (ACTS_LIMIT_MESSAGE_BYTES)",
            retry=False,
        )
    return value


def _at(place: str) -> str:
    return f"at {place}: " if place else ""
