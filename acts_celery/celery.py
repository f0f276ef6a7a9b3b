"""The application that `celery -A acts_celery …` finds; it reads the settings and loads the activities."""

import click

from acts_celery.worker.registry.mcp_tools import load_code
from acts_celery.worker.runner.application import make_application

from .broker_config import load
from .broker_config.errors import BrokerConfigError
from .worker.errors import WorkerError
from .worker.registry.activities import registry

try:
    settings = load()
    load_code(settings)
    app = make_application(settings, registry)
except (BrokerConfigError, WorkerError) as error:
    command = click.get_current_context(silent=True)
    if command is None or command.find_root().command.name != "celery":
        raise
    # Celery's command would print the traceback of any other exception as its message.
    raise SystemExit(f"acts: {error}") from None
