"""The application that `celery -A worker …` finds; it reads the settings and loads the activities when imported."""

from .errors import WorkerError
from .hidden import in_the_way

try:
    from broker_config import load

    from .app.application import make_application
    from .registry.activities import registry
    from .registry.loading import load_activities
except ImportError:
    # Celery would pass over an ImportError, and say that there is no application.
    if (said := in_the_way()) is not None:
        raise WorkerError(said) from None
    raise

settings = load()
load_activities(settings)
app = make_application(settings, registry)
