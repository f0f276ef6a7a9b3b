"""Layers: everything `acts doctor` looks at, in the order in which one depends on the other.

A layer is well, or not; a remedy says what to do, also for what only might become a problem. Secrets never show.
"""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from acts_celery.broker_config import ENVIRONMENT_PREFIX, BrokerConfigError, Settings, unknown_variables
from acts_celery.worker.cli.failures import DEBUG, Failed
from acts_celery.worker.cli.options import Common, load_registry
from acts_celery.worker.errors import ActivitiesError

from .layer import Layer
from .mcp import examine_mcp
from .models import examine_models
from .operator import examine_operator
from .servers import examine_servers

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
    from acts_celery.worker.registry.activities import registry

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
