"""The application that `celery -A acts_celery …` finds; it reads the settings and loads the activities."""

from .broker_config import load
from .worker.app.application import make_application
from .worker.registry.activities import registry
from .worker.registry.loading import load_activities

settings = load()
load_activities(settings)
app = make_application(settings, registry)
