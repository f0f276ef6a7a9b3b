"""What `acts worker` loads: models need a Django that is set up before they are imported."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
django.setup()

from . import activities  # noqa: E402, F401  # after the setup, and for its activities
