"""Making a model from its settings: which provider is which code. A client is made when its model is first asked."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from broker_config import ConfiguredModel
from worker.errors import WorkerError
from worker.registry.activities import Registry

from .registered import FunctionModel, OnThread
from .request import Model
from .scripted import ScriptedModel

PROVIDERS: Final = ("scripted",)


def make_model(configured: ConfiguredModel, registry: Registry, on_thread: OnThread) -> Model:
    """The model. Raises `WorkerError` where it cannot be had: no such provider, no file, a package that is missing."""
    provider = configured.provider
    if provider in registry.models:
        return FunctionModel(registry.models[provider], on_thread)
    if provider == "scripted":
        return ScriptedModel.load(Path(configured.name))
    known = ", ".join((*PROVIDERS, *registry.models))
    raise WorkerError(
        f"model {configured.model}: unknown provider {provider!r}; there are {known}, and functions registered with "
        "@model in ACTS_ACTIVITIES"
    )
