"""Activities that use tasks of the shop: the workers of acts-celery load it."""

import shop

from acts_celery import activity


@activity(timeout_seconds=30)
def find_price(item: str) -> float:
    # Celery refuses to wait inside of a task, and an activity runs inside of one of ours.
    return shop.price.delay(item).get(timeout=20, disable_sync_subtasks=False)


@activity(timeout_seconds=30)
def write_letter(name: str, euros: float) -> str:
    return shop.letter.delay(name, euros).get(timeout=20, disable_sync_subtasks=False)
