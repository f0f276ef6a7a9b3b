"""What plans may call: the workers load it, the service does not."""

from acts_celery import activity

PRICES = {"tea": 4.0, "coffee": 6.5}


@activity
def price(item: str) -> float:
    return PRICES[item]


@activity
def letter(name: str, item: str, euros: float) -> str:
    return f"Dear {name}, one {item} is {euros:.2f} euros."
