"""A shop with Django: an order is a row of its database and a run; activities use the models.

`pip install . django` in the clone, then, with the same ACTS_BROKER_URL:

    python manage.py migrate --run-syncdb
    acts worker --activities shop.worker
    python manage.py runserver
"""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
    execute_from_command_line(sys.argv)
