"""The layer of models: whether each that is configured can be loaded, and its server reached with its key."""

from __future__ import annotations

import asyncio

from acts_celery.broker_config import ConfiguredModel, Settings
from acts_celery.worker.errors import WorkerError

from .layer import Layer


def examine_models(settings: Settings) -> Layer:
    """Probe every configured model. None is asked anything that costs."""
    from acts_celery.worker.models.known import KnownModels
    from acts_celery.worker.registry.activities import registry

    layer = Layer("models")
    for configured in KnownModels(settings, registry).configured():
        _examine(layer, configured)
    if registry.models:
        layer.add(f"registered: {', '.join(sorted(registry.models))}")
    if not layer.detail:
        layer.add("none is configured: delegates must be code, and there can be no latent calls")
    return layer


def _examine(layer: Layer, configured: ConfiguredModel) -> None:
    from acts_celery.worker.models.errors import BadRequest, ModelError
    from acts_celery.worker.models.probing import probed
    from acts_celery.worker.models.providers import lacks_key
    from acts_celery.worker.registry.activities import registry

    if lacks_key(configured):
        # Where nothing is asked of it, as with a client, that is right so.
        layer.warn(f"{configured.model} has no key here", "set ACTS_MODEL_API_KEY where delegates run")
        return
    try:
        layer.add(asyncio.run(probed(configured, registry)))
    except BadRequest as error:
        layer.fail(str(error), "correct ACTS_MODEL_API_KEY, or ACTS_MODEL_BASE_URL")
    except ModelError as error:
        layer.fail(str(error), "start its server, or correct ACTS_MODEL_BASE_URL")
    except WorkerError as error:
        layer.fail(str(error), "correct ACTS_MODEL, or ACTS_MODELS")
