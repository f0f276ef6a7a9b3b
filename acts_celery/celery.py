"""The application that `celery -A acts_celery …` finds; it reads the settings and loads the activities."""

from .broker_config import load
from .worker.app.application import make_application
from .worker.mcp.registering import load_code
from .worker.registry.activities import registry

settings = load()
load_code(settings)
app = make_application(settings, registry)
