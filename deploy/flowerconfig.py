"""Flower's configuration: a task of a run has the address of its page, where ACTS_UI_URL says where the pages are.

celery -A acts_celery flower --conf=deploy/flowerconfig.py
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

from acts_celery.broker_config import load

PAGES = load().ui_url


def format_task(task: Any) -> Any:
    """The task as Flower shows it; its first argument is the run. Flower shows texts only, so the link is one."""
    found = re.search(r"[^\s'\"]+", task.args or "")
    if PAGES is not None and found is not None and (task.name or "").startswith("acts.") and task.name != "acts.probe":
        task.args = f"{task.args} {PAGES}/#/run/{quote(found[0], safe='')}"
    return task
