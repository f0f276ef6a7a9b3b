"""A Celery application of your own, beside acts-celery on the same Redis: its tasks submit runs.

`pip install .` in the clone, then, with a database of the Redis for each of the two (SHOP_URL=redis://localhost:6379/0
and ACTS_BROKER_URL=redis://localhost:6379/1):

    celery -A shop worker
    acts worker --activities desk.py
    python -c 'import shop; print(shop.order.delay("Ann", "tea").get())'
"""

import os

from celery import Celery, Task

from acts_celery import Client

app = Celery("shop", broker=os.environ["SHOP_URL"], backend=os.environ["SHOP_URL"])
PLAN = {
    "calls": [
        {"_tool": "find_price", "item": "†input.item", "_outputPath": "†state.price"},
        {"_tool": "write_letter", "name": "†input.name", "euros": "†state.price", "_outputPath": "†state.letter"},
    ]
}


@app.task
def price(item: str) -> float:
    return {"tea": 4.0, "coffee": 6.5}[item]


@app.task
def letter(name: str, euros: float) -> str:
    return f"Dear {name}, that is {euros:.2f} euros."


@app.task(bind=True)
def order(self: Task, name: str, item: str) -> str:
    """Submit a run and do not wait for it: a task that Celery delivers twice submits it once, by its id."""
    with Client() as client:  # made in the task, since connections do not outlive a fork
        given = [{"type": "input", "input": {"name": name, "item": item}}]
        return client.submit(given, PLAN, id=self.request.id, name="order").id
