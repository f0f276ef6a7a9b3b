"""The application that `celery -A worker …` finds; it reads the settings and loads the activities when imported."""

from broker_config import load

from .app.application import make_application
from .registry.activities import registry
from .registry.loading import load_activities

settings = load()
load_activities(settings)
app = make_application(settings, registry)
