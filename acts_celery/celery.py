"""The application that `celery -A acts_celery …` finds; it reads the settings and loads the activities."""

from acts_celery.worker.registry.mcp_tools import load_code
from acts_celery.worker.runner.application import make_application

from .broker_config import load
from .worker.registry.activities import registry

settings = load()
load_code(settings)
app = make_application(settings, registry)
