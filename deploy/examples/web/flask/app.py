"""A shop with Flask: each order is a run of the shop's own plan, and can be followed (server-sent events).

`pip install . flask` in the clone, then, with the same ACTS_BROKER_URL:

    acts worker --activities tools.py
    flask run
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from typing import Any

from flask import Flask, Response, request

from acts_celery import Client, InfrastructureError, Rejected, RunNotFound, RunTimeout

PLAN = {
    "calls": [
        {"_tool": "price", "item": "†input.item", "_outputPath": "†state.price"},
        {
            "_tool": "letter",
            "name": "†input.name",
            "item": "†input.item",
            "euros": "†state.price",
            "_outputPath": "†state.letter",
        },
    ]
}
app = Flask(__name__)


@cache
def client() -> Client:  # one for the process, made after a server such as gunicorn has forked; threads may share it
    return Client()


@app.post("/orders")
def order() -> tuple[dict[str, str], int]:
    given = [{"type": "input", "input": request.get_json()}]
    run = client().submit(given, PLAN, id=request.headers.get("Idempotency-Key"), name="order")
    return {"order": run.id}, 202


@app.get("/orders/<order_id>")
def look(order_id: str) -> tuple[dict[str, Any], int]:
    run = client().run(order_id)
    status = run.status()["status"]
    if status != "completed":
        return {"status": status}, 202 if status in ("running", "paused") else 500
    return {"status": status, "letter": run.result().data()["state"]["letter"]}, 200


@app.get("/orders/<order_id>/events")
def events(order_id: str) -> Response:
    run = client().run(order_id)  # not found is said before the stream begins

    def lines(after: str) -> Iterator[str]:  # holds a thread of the server for as long as somebody follows
        while True:
            try:
                for event in run.follow(after=after, timeout_seconds=15):
                    after = event.id
                    yield f"id: {event.id}\ndata: {json.dumps(asdict(event))}\n\n"
            except RunTimeout:
                yield ": alive\n\n"  # where the browser has gone, this ends the generator
            else:
                return

    return Response(lines(request.headers.get("Last-Event-ID", "0-0")), mimetype="text/event-stream")


@app.errorhandler(Rejected)
def rejected(error: Rejected) -> tuple[dict[str, Any], int]:
    errors = [{"pointer": one.pointer, "message": one.message} for one in error.errors]
    return {"title": "This order cannot run", "status": 422, "errors": errors}, 422


@app.errorhandler(RunNotFound)
def not_found(error: RunNotFound) -> tuple[dict[str, Any], int]:
    return {"title": "There is no such order", "status": 404, "detail": str(error)}, 404


@app.errorhandler(InfrastructureError)
def unavailable(_: InfrastructureError) -> tuple[dict[str, Any], int, dict[str, str]]:
    return {"title": "Try again soon", "status": 503}, 503, {"Retry-After": "2"}
