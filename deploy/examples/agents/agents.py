"""What the agents of the examples can do. Nothing is fetched: a small shop's data is here."""

import asyncio
from typing import Any

from acts_celery import activity

ORDERS: dict[str, dict[str, Any]] = {"A-17": {"total": 40, "card": "expired"}, "A-18": {"total": 25, "card": "valid"}}
PAGES = {
    "tea": "Tea was drunk in China before 200 BC.",
    "coffee": "Coffee was drunk in Yemen in the 15th century.",
    "cocoa": "Cocoa was drunk in Mexico before 1500 BC.",
}


@activity
def hideComment(why: str) -> str:
    """Hide the comment of this instance."""
    return f"hidden: {why}"


@activity
def thankAuthor(text: str) -> str:
    """Write to the author of the comment of this instance."""
    return f"written: {text}"


@activity
def findOrder(order: str) -> dict[str, Any]:
    """Look an order up: its total, and whether its card is valid."""
    return {"id": order, **ORDERS[order]}


@activity
def payBack(order: str, amount: int) -> str:
    """Pay an amount back to the card of an order."""
    if ORDERS[order]["card"] != "valid":
        raise ValueError(f"the card of {order} is {ORDERS[order]['card']}: give store credit instead")
    return f"paid back {amount}"


@activity
def giveCredit(order: str, amount: int) -> str:
    """Give store credit for an order."""
    return f"credit of {amount} for {order}"


@activity
async def search(topic: str) -> dict[str, str]:
    """Find a sentence about a topic: one of tea, coffee, cocoa."""
    await asyncio.sleep(0.05)  # as if it were far away: searches of one answer run at the same time
    return {topic: PAGES[topic]}
