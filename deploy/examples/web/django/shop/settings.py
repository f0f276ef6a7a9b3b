"""The settings of the shop; those of acts-celery are environment variables of their own (ACTS_…)."""

import os
from pathlib import Path

SECRET_KEY = os.environ.get("SHOP_SECRET_KEY", "only for this example")
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
INSTALLED_APPS = ["shop"]
MIDDLEWARE = ["shop.views.Refusals"]
ROOT_URLCONF = "shop.urls"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("SHOP_DATABASE", Path(__file__).parents[1] / "shop.sqlite3"),
    }
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
