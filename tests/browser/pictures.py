"""The pictures of the page in the docs: `python -m tests.browser.pictures` takes them of real runs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from acts_celery import Run
from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.registry.loading import load
from tests.worker.backend import ACTIVITIES, Backend, Meeting, meeting_url, settings_for
from tests.worker.loops import loop_settings

from .chromium import launched, window
from .runs import SHOP, file_of, loop_run, open_view, shop_run

IMAGES: Final = Path(__file__).resolve().parents[2] / "docs" / "images"
MOST_BYTES: Final = 150_000
_INSTANCES: Final = 200
_WRONG: Final = (17, 84, 130)


def main() -> None:
    """Take them all."""
    load(str(ACTIVITIES))
    load(str(SHOP))
    with tempfile.TemporaryDirectory() as name, EmbeddedServer() as server:
        folder, meeting = Path(name), Meeting(meeting_url(server))
        shop = Backend(settings_for(server, activities=(str(ACTIVITIES), str(SHOP))), meeting, folder)
        asking = Backend(loop_settings(server, "asking"), meeting, folder)
        with shop.worker(), asking.worker():
            orders, loop = shop_run(shop, _INSTANCES, _WRONG), loop_run(asking)
            take("page-plan", (1000, 760), file_of(shop, orders, folder), orders)
            take("page-failure", (1240, 760), file_of(shop, orders, folder), orders, "instance", f"order-{_WRONG[0]}")
            take("page-conversation", (1000, 860), file_of(asking, loop, folder), loop, "conversation")


def take(name: str, size: tuple[int, int], file: str, run: Run, *parts: str) -> None:
    """One picture, of a window of a size."""
    path = IMAGES / f"{name}.png"
    with launched() as browser, window(browser, size) as opened:
        open_view(opened, file, run, *parts)
        opened.page.screenshot(path=path)
    assert path.stat().st_size < MOST_BYTES, f"{path} is too large"


if __name__ == "__main__":
    main()
