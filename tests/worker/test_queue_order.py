"""No queue of a worker keeps the thread that reads messages to itself: each gets an equal share of its time."""

from __future__ import annotations

import gc
import time
import weakref
from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from kombu import Consumer, Queue

from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.broker.consumer import MOST_BYTES, InFlight, keep_once
from acts_celery.worker.broker.transport import BackendConnection, QueueOrder


def _serve(order: QueueOrder, lengths: Counter[str], costs: dict[str, float], count: int) -> list[str]:
    """The queues from which so many messages are taken."""
    taken = []
    for _ in range(count):
        queue = next(queue for queue in order.consume(len(costs)) if lengths[queue])
        lengths[queue] -= 1
        order.rotate(queue)
        order.charge(costs[queue])
        taken.append(queue)
    return taken


def test_a_queue_of_messages_that_take_long_gets_no_more_time_than_another() -> None:
    order = QueueOrder()
    order.update(["heavy", "light"])
    taken = _serve(order, Counter(heavy=100, light=1_000), {"heavy": 1.0, "light": 0.01}, 505)
    assert 4 <= taken.count("heavy") <= 6
    assert "light" in taken[:2]


def test_queues_whose_messages_take_as_long_take_turns() -> None:
    order = QueueOrder()
    order.update(["a", "b", "c"])
    taken = _serve(order, Counter(a=50, b=50, c=50), {"a": 1.0, "b": 1.0, "c": 1.0}, 90)
    assert Counter(taken) == {"a": 30, "b": 30, "c": 30}


def test_a_queue_that_was_empty_for_long_has_saved_up_no_time() -> None:
    order = QueueOrder()
    order.update(["busy", "idle"])
    _serve(order, Counter(busy=1_000), {"busy": 1.0, "idle": 1.0}, 1_000)
    taken = _serve(order, Counter(busy=100, idle=100), {"busy": 1.0, "idle": 1.0}, 20)
    assert 9 <= taken.count("idle") <= 11


def test_a_queue_that_is_new_begins_with_the_others_and_one_that_is_gone_is_not_asked() -> None:
    order = QueueOrder()
    order.update(["old", "gone"])
    _serve(order, Counter(old=100), {"old": 1.0, "gone": 1.0}, 100)
    order.update(["old", "new"])
    assert order.consume(2) == ["old", "new"]
    order.rotate("gone")
    order.charge(1.0)
    taken = _serve(order, Counter(old=100, new=100), {"old": 1.0, "new": 1.0}, 20)
    assert 9 <= taken.count("new") <= 11


def test_small_messages_of_one_queue_do_not_wait_for_all_large_ones_of_another(server: EmbeddedServer) -> None:
    taken: list[str] = []

    def take(body: Any, message: Any) -> None:
        taken.append(body)
        message.ack()
        if body == "large":
            time.sleep(0.05)  # as long as it takes to read one

    queues = [Queue("order.large"), Queue("order.small")]
    with BackendConnection(server.broker_url) as connection:
        for queue, count in zip(queues, (20, 40), strict=True):
            queue(connection.default_channel).declare()
            producer = connection.Producer()
            for _ in range(count):
                producer.publish(queue.name.rpartition(".")[2], routing_key=queue.name, exchange="")
        with Consumer(connection, queues, callbacks=[take]):
            while len(taken) < 60:
                connection.drain_events(timeout=10)
    last_small = len(taken) - 1 - taken[::-1].index("small")
    assert taken[:last_small].count("large") <= 5  # of 20, where both queues take turns
    assert taken.count("large") == 20


def test_a_queue_of_which_much_is_in_hand_is_not_asked_until_some_of_it_is_answered() -> None:
    order, in_flight = QueueOrder(), InFlight()
    order.update(["heavy", "light"])
    order.is_closed = in_flight.is_full_of
    answered: list[str] = []

    def message(queue: str, size: int) -> Any:
        answer = partial(answered.append, queue)
        return SimpleNamespace(
            payload=[[b"x" * size], {}, {}],
            delivery_info={"taken_from": queue},
            ack_log_error=lambda *_: answer(),
            reject_log_error=lambda *_: answer(),
        )

    large = [message("heavy", MOST_BYTES // 4) for _ in range(4)]
    for one in (*large, *(message("light", 1_000) for _ in range(1_000))):
        assert order.consume(2) == (["heavy", "light"] if one in large else ["light"])
        in_flight.add(one)
    assert order.consume(2) == ["light"]
    large[0].ack_log_error()
    large[0].reject_log_error()
    assert (order.consume(2), answered) == (["heavy", "light"], ["heavy"])


def test_a_message_that_is_answered_stays_in_memory_no_longer() -> None:
    class Message(SimpleNamespace):
        def acknowledge(self) -> None:
            self.is_answered = True

    message = Message(payload=[[b"x"], {}, {}], delivery_info={"taken_from": "queue"})
    message.ack_log_error = message.reject_log_error = message.acknowledge
    gone = weakref.ref(message)
    gc.disable()  # only a cycle would have to wait for it
    try:
        InFlight().add(message)
        message.ack_log_error()
        assert message.is_answered
        del message
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("raw", [{}, {"_raw": {"body": "x"}}])  # over RabbitMQ, over Redis
def test_a_message_is_kept_once_over_either_broker(raw: dict[str, Any]) -> None:
    message = SimpleNamespace(
        payload=[[b"x"], {}, {}], body=b"packed", content_type="msgpack", content_encoding="b", **raw
    )
    keep_once(message)
    assert (message.body, message.content_type, message.content_encoding) == ([[b"x"], {}, {}], None, None)
    assert vars(message).get("_raw", {"body": ""}) == {"body": ""}
