"""Probing a model: whether it can be had, and whether it is there, without asking it anything that costs."""

from __future__ import annotations

from typing import Any, Final

from acts_celery.broker_config import ConfiguredModel
from acts_celery.worker.registry.activities import Registry

from .errors import BadRequest, InvalidAnswer, Unreachable
from .http_client import Bounds
from .providers import make_model
from .request import Listing

_SECONDS: Final = 10.0
_BOUNDS: Final = Bounds(answer_bytes=1_000_000, connections=1)
_SHOWN: Final = 5


async def probed(configured: ConfiguredModel, registry: Registry) -> str:
    """What is known of the model now that it was probed. Raises `WorkerError` where it cannot be had, or reached."""
    model = make_model(configured, registry, _nowhere, _BOUNDS)
    if not isinstance(model, Listing):
        return f"{configured.model} can be loaded"
    try:
        names = await model.names(_SECONDS)
    except TimeoutError:
        raise Unreachable(f"{configured.model} has not answered within {_SECONDS:g} s") from None
    except InvalidAnswer:
        names = []
    except BadRequest as error:
        if error.status not in (404, 405):  # it has no list, and that is all it says
            raise
        names = []
    finally:
        await model.close()
    if names and configured.name not in names:
        shown = ", ".join(names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
        return f"{configured.model} answers, and lists no model {configured.name}, but {shown}"
    return f"{configured.model} answers"


async def _nowhere(_: Any) -> Any:
    raise AssertionError("a model is probed, not asked")
