"""The environment that a test hands to what it starts: none of our settings, but for the server that all tests use."""

from __future__ import annotations

import os

from acts_celery.broker_config.server_binary import VARIABLE


def without_settings() -> dict[str, str]:
    """This process's environment without `ACTS_…`, as on a machine where nothing is configured."""
    return {name: value for name, value in os.environ.items() if not name.startswith("ACTS_") or name == VARIABLE}
