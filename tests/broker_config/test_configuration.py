"""Celery's configuration: known to Celery, in effect, and msgpack only. Messages go through a real server."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Any

import msgpack
import pytest
from celery import Celery
from celery.app.defaults import SETTING_KEYS
from kombu import Connection
from kombu.exceptions import ContentDisallowed
from kombu.transport.redis import Channel, SentinelChannel
from redis import Redis

from acts_celery.broker_config import (
    EXECUTE_ACTIVITY,
    EXECUTE_BACKGROUND,
    EXECUTE_DELEGATE,
    EXECUTE_INSTANCE,
    EmbeddedServer,
    NotConfigured,
    Settings,
    SettingsError,
    celery_configuration,
    load,
    priority_queue,
    queue,
    queues,
    reports_queue,
    transport_options,
)
from acts_celery.broker_config.configuration import owner_of

ADDRESSES = ["redis://host/0", "rediss://host/0", "redis+socket:///run/s", "sentinel://a:1", "amqp://host//"]


def configured(settings: Settings) -> Celery:
    app = Celery("test", set_as_current=False)
    app.config_from_object(celery_configuration(settings))
    return app


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as running:
        yield running


@pytest.fixture
def app(server: EmbeddedServer) -> Iterator[Celery]:
    with Redis.from_url(server.redis_url) as redis:
        redis.flushall()
    with configured(load(broker_url=server.broker_url)) as running:
        yield running


@pytest.mark.parametrize("url", ADDRESSES)
def test_celery_knows_every_option(url: str) -> None:
    configuration = celery_configuration(load(broker_url=url, result_backend_url="rediss://host/1"))
    assert set(configuration) <= SETTING_KEYS


@pytest.mark.parametrize("url", [url for url in ADDRESSES if not url.startswith("amqp")])
def test_kombu_knows_every_transport_option(url: str) -> None:
    channel = SentinelChannel if url.startswith("sentinel") else Channel
    options = transport_options(load(broker_url=url, sentinel_password="pw"))
    assert set(options) <= set(channel.from_transport_options)


def test_the_options_reach_the_channel(app: Celery) -> None:
    with app.connection_for_write() as connection:
        channel = connection.default_channel
        assert (channel.ack_emulation, channel.health_check_interval) == (False, 5)
        assert channel.pool.connection_kwargs["socket_timeout"] == 15
        assert channel.supports_batch_publish


def test_without_a_broker_there_is_no_configuration() -> None:
    with pytest.raises(NotConfigured):
        celery_configuration(load())


def test_a_result_backend_is_used_only_where_one_is_configured() -> None:
    without = configured(load(broker_url="redis://host/0"))
    assert without.conf.task_ignore_result is True
    assert without.backend.as_uri() == "disabled://"
    having = configured(load(broker_url="redis://host/0", result_backend_url="redis://host/1"))
    assert having.conf.task_ignore_result is False
    assert having.backend.as_uri() == "redis://host/1"


def test_tls_asks_for_a_verified_certificate_unless_the_url_says_otherwise() -> None:
    def requirement(url: str) -> object:
        with configured(load(broker_url=url)).connection_for_write() as connection:
            return connection.ssl["ssl_cert_reqs"]

    assert requirement("rediss://host/0") == ssl.CERT_REQUIRED
    assert requirement("rediss://host/0?ssl_cert_reqs=none") == ssl.CERT_NONE
    backend = configured(load(broker_url="redis://host/0", result_backend_url="rediss://host/1")).backend
    assert backend.connparams["ssl_cert_reqs"] == ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (EXECUTE_INSTANCE, "first"),
        ("acts.deliver", "first"),
        (EXECUTE_DELEGATE, "delegates"),
        (EXECUTE_BACKGROUND, "background"),
        ("some.task_of_the_users", "first"),
    ],
)
def test_every_task_has_its_queue(task: str, expected: str) -> None:
    app = configured(load(broker_url="redis://host/0", queue_instances="first"))
    assert app.amqp.router.route({}, task)["queue"].name == expected


def test_an_activity_goes_to_the_queue_its_sender_names(app: Celery, server: EmbeddedServer) -> None:
    app.send_task(EXECUTE_ACTIVITY, args=[b"x"], queue="gpu", argsrepr="-", kwargsrepr="-")
    with Redis.from_url(server.redis_url) as redis:
        assert redis.llen("gpu") == 1


def test_quorum_queues_are_asked_for_everywhere_and_of_a_rabbitmq_alone() -> None:
    with pytest.raises(SettingsError, match="ACTS_QUEUE_TYPE: quorum queues are RabbitMQ's"):
        load(env_file=None, broker_url="redis://localhost", queue_type="quorum")
    settings = load(env_file=None, broker_url="amqp://localhost//", queue_type="quorum")
    declared = (*queues(settings), reports_queue(settings), priority_queue("instances", 9, settings.queue_type))
    assert {queue.queue_arguments["x-queue-type"] for queue in declared} == {"quorum"}
    assert celery_configuration(settings)["task_create_missing_queue_type"] == "quorum"


def test_over_rabbitmq_no_activity_may_have_the_queue_of_anothers_priorities() -> None:
    rabbit, redis = (load(env_file=None, broker_url=url) for url in ("amqp://localhost//", "redis://localhost"))
    assert priority_queue("mail", 9, "classic").name == "mail.priority9"
    assert owner_of("mail.priority9", rabbit) == "tasks with a priority"
    assert owner_of("mail.priority", rabbit) is owner_of("mail.priority9", redis) is None


def published(app: Celery, body: Any, *, serializer: str) -> Any:
    """Send `body` to the instances queue in some serialisation; return what a worker would receive."""
    received: list[Any] = []
    with Connection(app.conf.broker_url) as sender:
        sender.Producer().publish(
            body,
            exchange="",
            routing_key="instances",
            serializer=serializer,
            declare=[queue("instances", load(env_file=None))],
        )
    with (
        app.connection_for_read() as connection,
        app.amqp.TaskConsumer(connection.default_channel, on_message=received.append),
    ):
        connection.drain_events(timeout=10)
    return received[0]


def test_the_application_reads_msgpack(app: Celery) -> None:
    payload = msgpack.packb({"text": "Привет"})
    assert published(app, [[payload], {}, {}], serializer="msgpack").payload == [[payload], {}, {}]


@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_the_application_refuses_everything_else(app: Celery, serializer: str) -> None:
    with pytest.raises(ContentDisallowed):
        _ = published(app, [[1], {}, {}], serializer=serializer).payload


def test_a_task_is_published_as_msgpack(app: Celery) -> None:
    received: list[Any] = []
    app.send_task(EXECUTE_INSTANCE, args=[b"\x81\xa1a\x01"], argsrepr="-", kwargsrepr="-")
    with (
        app.connection_for_read() as connection,
        app.amqp.TaskConsumer(connection.default_channel, on_message=received.append),
    ):
        connection.drain_events(timeout=10)
    (message,) = received
    assert message.content_type == "application/x-msgpack"
    assert message.headers["argsrepr"] == "-"
    assert message.payload[0] == [b"\x81\xa1a\x01"]


def test_events_can_be_switched_off() -> None:
    quiet = celery_configuration(load(broker_url="redis://host/0", send_events=False))
    assert (quiet["worker_send_task_events"], quiet["task_send_sent_event"]) == (False, False)
