"""Layers: everything `acts doctor` looks at, in the order in which one depends on the other.

A layer is well, or not; a remedy says what to do, also for what only might become a problem. Secrets never show.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from ...broker_config import (
    ENVIRONMENT_PREFIX,
    BrokerConfigError,
    ConfiguredModel,
    Settings,
    unknown_variables,
)
from ..errors import ActivitiesError, WorkerError
from .doctor_servers import Layer, examine_servers
from .options import DEBUG, Common, Failed, load_registry

# The layer of MCP servers: whether each can be opened, and whether its tools are those that are admitted.


def examine_mcp(settings: Settings) -> Iterator[Layer]:
    """Ask every server for its tools; nothing where none is configured."""
    if not settings.mcp:
        return
    from ..registry.mcp_tools import UNSET, read_admitted, standings
    from .mcp import listed

    layer = Layer("mcp")
    yield layer
    if settings.mcp_admitted is None:
        layer.warn("no tool is admitted", UNSET)
    try:
        admitted = read_admitted(settings)
    except ActivitiesError as error:
        layer.fail(str(error), "correct the file, or ACTS_MCP_ADMITTED")
        return
    for name, found in listed(settings, settings.mcp).items():
        if isinstance(found, WorkerError):
            # Where only the workers of its queue have it, that is right so.
            note = layer.fail if settings.mcp[name].queue is None else layer.warn
            note(str(found), f"start it, or correct ACTS_MCP: {name}")
            continue
        states = Counter(each.state for each in standings(name, found, admitted.get(name, {})))
        told = f"{name}: {', '.join(f'{count} {state}' for state, count in sorted(states.items())) or 'no tools'}"
        if states["changed"] or states["gone"]:
            layer.warn(told, f"look at `acts mcp tools {name}`, and admit what is right")
        else:
            layer.add(told)


# The layer of models: whether each that is configured can be loaded, and its server reached with its key.


def examine_models(settings: Settings) -> Layer:
    """Probe every configured model. None is asked anything that costs."""
    from ..registry.activities import registry
    from ..registry.models import KnownModels

    layer = Layer("models")
    for configured in KnownModels(settings, registry).configured():
        _examine(layer, configured)
    if registry.models:
        layer.add(f"registered: {', '.join(sorted(registry.models))}")
    if not layer.detail:
        layer.add("none is configured: delegates must be code, and there can be no latent calls")
    return layer


def _examine(layer: Layer, configured: ConfiguredModel) -> None:
    from ..agent.asking import lacks_key, probed
    from ..registry.activities import registry
    from ..registry.models import BadRequest, ModelError

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


# The layer of what the operator says of tools: whether the file can be read, and what of it may not be meant so.


def examine_operator(settings: Settings) -> Iterator[Layer]:
    """Nothing where no file is named."""
    if settings.trust is None:
        return
    from ..registry.activities import registry
    from ..registry.request_definitions import doubts, operator_trust

    layer = Layer("trust")
    yield layer
    try:
        layer.add(f"{settings.trust} speaks of {', '.join(sorted(operator_trust(settings).said)) or 'no tool'}")
        for doubt in doubts(settings, registry):
            layer.warn(doubt, "correct the file, or ignore this")
    except ActivitiesError as error:
        layer.fail(str(error), "correct the file, or ACTS_TRUST")


_PACKAGES: Final = ("acts-celery", "celery", "kombu", "redis", "msgpack")
_BAD_CELERY: Final = "5.7.0"
_NOT_OURS: Final = frozenset({DEBUG})


def examine(common: Common) -> list[Layer]:
    """Every layer; raises for nothing that it finds."""
    layer, settings = _settings(common)
    layers = [layer, _versions()]
    if settings is None:
        return layers
    layers += [_activities(settings), *examine_operator(settings), examine_models(settings), *examine_mcp(settings)]
    layers += examine_servers(settings)
    return [_without_secrets(found, settings) for found in layers]


def _settings(common: Common) -> tuple[Layer, Settings | None]:
    layer = Layer("settings")
    try:
        settings = common.settings()
    except BrokerConfigError as error:
        layer.fail("; ".join(str(error).splitlines()), "correct these values")
        return layer, None
    masked = settings.masked()
    shown = [
        f"{name}={masked[name]} ({_origin(name, common)})"
        for name in type(settings).model_fields
        if name in settings.model_fields_set
    ]
    layer.add(", ".join(shown) if shown else "all at their defaults")
    strangers = {name: meant for name, meant in unknown_variables(os.environ).items() if name not in _NOT_OURS}
    for name, meant in strangers.items():
        remedy = f"did you mean {meant}?" if meant else f"remove it, or see the settings that begin with {name[:5]}"
        layer.warn(f"{name} is no setting", remedy)
    return layer, settings


def _origin(name: str, common: Common) -> str:
    variable = ENVIRONMENT_PREFIX + name.upper()
    if name in common.overrides:
        return "option"
    return "environment" if any(key.upper() == variable for key in os.environ) else ".env"


def _versions() -> Layer:
    layer = Layer("versions", f"python {platform.python_version()}")
    for package in _PACKAGES:
        try:
            layer.add(f"{package} {version(package)}")
        except PackageNotFoundError:
            if package == "acts-celery":
                layer.add("acts-celery not installed, run from its sources")
            else:
                layer.fail(f"{package} is missing", f"{sys.executable} -m pip install {package}")
    if f"celery {_BAD_CELERY}" in layer.detail:
        layer.warn(
            "this Celery's workers die when Redis is away for two seconds",
            "pip install 'celery>=5.6.3,<5.7' 'kombu>=5.7'",
        )
    return layer


def _activities(settings: Settings) -> Layer:
    layer = Layer("activities")
    try:
        load_registry(settings)
    except (ActivitiesError, Failed) as error:
        layer.fail(str(error), "correct the file, or ACTS_ACTIVITIES")
        return layer
    from ..registry.activities import registry

    for noun, names in (("activities", registry.activities), ("delegates", registry.delegates)):
        if names:
            layer.add(f"{len(names)} {noun}: {', '.join(sorted(names))}")
    if not layer.detail:
        layer.add("none are configured: calls are carried out by delegates, or by a model (latent calls)")
    return layer


def _without_secrets(layer: Layer, settings: Settings) -> Layer:
    """The layer with every password and key masked, wherever an error's text has it from."""
    for secret in sorted(settings.secrets(), key=len, reverse=True):
        layer.detail = layer.detail.replace(secret, "***")
    return layer
