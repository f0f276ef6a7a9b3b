"""The environment that a test hands to what it starts: none of our settings, but for the server that all tests use."""

from __future__ import annotations

import os

from acts_celery.broker_config import ENVIRONMENT_PREFIX, Settings
from acts_celery.broker_config.embedded import VARIABLE
from acts_celery.broker_config.loading import ENV_FILE
from acts_celery.worker.cli.options import DEBUG


def remove_settings() -> None:
    """Take our settings out of this process's environment; what only tests read stays."""
    for name in (DEBUG, ENV_FILE, *(ENVIRONMENT_PREFIX + field.upper() for field in Settings.model_fields)):
        os.environ.pop(name, None)


def without_settings() -> dict[str, str]:
    """This process's environment without `ACTS_…`, as on a machine where nothing is configured."""
    return {
        name: value
        for name, value in os.environ.items()
        if name == VARIABLE or not name.upper().startswith(ENVIRONMENT_PREFIX)
    }
