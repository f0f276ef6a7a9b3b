"""The peer: the same jobs on Celery alone, with its own canvas and a result backend."""

from __future__ import annotations

import os
import time

from celery import Celery

app = Celery("bare")
app.conf.update(
    broker_url=os.environ.get("BENCH_BROKER", "memory://"),
    result_backend=os.environ.get("BENCH_BACKEND"),
    task_serializer="msgpack",
    result_serializer="msgpack",
    accept_content=["msgpack"],
    task_default_queue="bare",
    broker_connection_retry_on_startup=True,
)


@app.task  # type: ignore[untyped-decorator]  # celery has no types
def echo(value: str) -> str:
    return value


@app.task  # type: ignore[untyped-decorator]  # celery has no types
def pause(seconds: float) -> float:
    time.sleep(seconds)  # the work itself: a call that waits
    return seconds
