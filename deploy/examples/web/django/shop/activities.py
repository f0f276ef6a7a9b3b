"""What the plan of an order calls. Workers close database connections around each attempt, as Django does around each
request; a query that finds its connection lost fails, and `retries` give the call a new one.
"""

from acts_celery import activity

from .models import Order

PRICES = {"tea": 4.0, "coffee": 6.5}


@activity(retries=2)
async def price(order: int) -> float:
    found = await Order.objects.aget(pk=order)  # in a coroutine Django's asynchronous queries
    return PRICES[found.item]


@activity(retries=2)
def write_letter(order: int, euros: float) -> None:
    found = Order.objects.get(pk=order)
    found.letter = f"Dear {found.name}, one {found.item} is {euros:.2f} euros."
    found.save(update_fields=["letter"])
