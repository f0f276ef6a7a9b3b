"""Making a model from its settings: which provider is which code. A client is made when its model is first asked."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from acts_celery.broker_config import ConfiguredModel
from acts_celery.protocol.requests.functions import TOOLS, functions_of
from acts_celery.protocol.submission.config import SAMPLING
from acts_celery.worker.errors import WorkerError
from acts_celery.worker.registry.activities import Registry

from .anthropic_messages import AnthropicMessages
from .fitting import fit_schema
from .function_fitting import fitted_functions
from .http_client import Bounds
from .openai_chat import OpenAIChat
from .profiles import profile_of
from .recording import RecordedModel
from .registered import FunctionModel, OnThread
from .request import Model
from .scripted import ScriptedModel
from .sdk_model import Dialect, SdkModel
from .wire_schema import Opening

_SDKS: Final[Mapping[str, Dialect]] = {"openai": OpenAIChat(), "anthropic": AnthropicMessages()}
"""Providers that are asked over the network. Each name is that of an extra, and of the SDK that it brings."""
PROVIDERS: Final = (*_SDKS, "scripted")


def make_model(configured: ConfiguredModel, registry: Registry, on_thread: OnThread, bounds: Bounds) -> Model:
    """The model. Raises `WorkerError` where it cannot be had: no such provider, no file, no SDK, no key."""
    made = _made(configured, registry, on_thread, bounds)
    return made if configured.recording is None else RecordedModel(made, configured, Path(configured.recording))


def _made(configured: ConfiguredModel, registry: Registry, on_thread: OnThread, bounds: Bounds) -> Model:
    provider = configured.provider
    if provider in registry.models:
        return FunctionModel(registry.models[provider], on_thread)
    if provider == "scripted":
        return ScriptedModel.load(Path(configured.name))
    if provider in _SDKS:
        if find_spec(provider) is None:
            raise WorkerError(
                f"model {configured.model}: its Python package is missing: pip install 'acts-celery[{provider}]'"
            )
        if lacks_key(configured):
            raise WorkerError(f"model {configured.model}: it has no key: set ACTS_MODEL_API_KEY")
        return SdkModel(_SDKS[provider], configured, bounds)
    known = ", ".join((*PROVIDERS, *registry.models))
    raise WorkerError(
        f"model {configured.model}: unknown provider {provider!r}; there are {known}, and functions registered with "
        "@model in ACTS_ACTIVITIES"
    )


def enforced(
    configured: ConfiguredModel, schema: Any, *, is_native: bool = False
) -> tuple[str | None, tuple[Opening, ...]]:
    """Why a model's provider enforces nothing of a schema, None where it does, and the places at which it does not
    (SPEC R12.8); `is_native` where the tools go as functions. Who is asked otherwise than over the network takes any.
    """
    dialect = _SDKS.get(configured.provider)
    if dialect is None or configured.enforce != "auto":
        return None, ()
    profile = profile_of(configured, dialect.url)
    if is_native:
        return None, fitted_functions(functions_of(schema), profile)[1]
    written = fit_schema(schema, profile)
    return (written, ()) if isinstance(written, str) else (None, written.openings)


def writes_texts(configured: ConfiguredModel) -> bool:
    """Whether a model may be held to a schema in which `_json` texts stand for what it cannot say (SPEC R12.6). A
    scripted one may repeat what such a model has written.
    """
    dialect = _SDKS.get(configured.provider)
    if dialect is None:
        return configured.provider == "scripted"
    rules = profile_of(configured, dialect.url).rules
    return configured.enforce == "auto" and rules is not None and rules.is_closed


def most_tools(configured: ConfiguredModel) -> int | None:
    """How many tools a model can be offered as functions, beside the one of its output (SPEC R12.8). None where its
    tools go otherwise, or its provider names no limit.
    """
    dialect = _SDKS.get(configured.provider)
    most = profile_of(configured, dialect.url).most_functions if dialect is not None else None
    return most - 1 if most is not None and configured.wire == TOOLS else None


def missing_settings(configured: ConfiguredModel, config: Mapping[str, Any]) -> list[str]:
    """The settings of a `config` that a model's provider does not have. A function is given all of them."""
    dialect = _SDKS.get(configured.provider)
    return [key for key in SAMPLING if config.get(key) is not None and dialect and key not in dialect.settings]


def lacks_key(configured: ConfiguredModel) -> bool:
    """Whether its provider asks for a key and there is none; at an address of one's own none may be needed."""
    return configured.provider in _SDKS and configured.base_url is None and configured.api_key is None
