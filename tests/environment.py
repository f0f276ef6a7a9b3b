"""The environment that a test hands to what it starts: none of our settings, but for the server that all tests use."""

from __future__ import annotations

import os

import pytest

from acts_celery.broker_config import ENVIRONMENT_PREFIX
from acts_celery.broker_config.server_binary import VARIABLE


def remove_settings(patch: pytest.MonkeyPatch) -> None:
    """Take our settings out of this process's environment, until the patch is undone; the server stays."""
    for name in os.environ.keys() - without_settings():
        patch.delenv(name)


def without_settings() -> dict[str, str]:
    """This process's environment without `ACTS_…`, as on a machine where nothing is configured."""
    return {
        name: value
        for name, value in os.environ.items()
        if name == VARIABLE or not name.upper().startswith(ENVIRONMENT_PREFIX)
    }
