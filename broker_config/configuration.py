"""Settings -> Celery's configuration, every departure from Celery's defaults with its reason.

The rules behind it: msgpack and nothing else is decoded; a message is acknowledged after its work, not
before; a broker that goes away is waited for; nothing of ours needs a result backend.
"""

from __future__ import annotations

import re
import socket
import ssl
import sys
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from . import limits
from .addresses import scheme_of
from .settings import DEFAULT_PREFIX, Settings

if TYPE_CHECKING:
    from kombu import Queue


# Names of the tasks, and which queue each goes to.
#
# Only workers on the `instances` queue touch the log. Delegates and fire-and-forget calls have queues of their
# own, so that neither can hold up the others; an activity may name a queue of its own, which is created when it
# is used.
#
# kombu is loaded with the first queue, since `acts check` needs the names alone.

EXECUTE_INSTANCE = "acts.execute_instance"
"""Runs the calls of one instance that are ready."""

PROBE = "acts.probe"
"""Proves, when it is taken from the queue of the instances, that what was published before it was taken too."""

DELIVER = "acts.deliver"
"""Brings the result of a call that ran elsewhere back to its instance."""

EXECUTE_DELEGATE = "acts.execute_delegate"
"""Runs one delegate on its snapshot of the context (SPEC R9)."""

EXECUTE_ACTIVITY = "acts.execute_activity"
"""Runs one activity that has a queue of its own; the sender names the queue."""

EXECUTE_BACKGROUND = "acts.execute_background"
"""Runs one fire-and-forget call (SPEC R5)."""

SEVERAL = ".several"
"""Suffix of a message's name that carries several tasks of the name before it."""


def queue_names(settings: Settings) -> tuple[str, ...]:
    """Return the queues a worker serves unless told otherwise, each once."""
    return tuple(dict.fromkeys((settings.queue_instances, settings.queue_delegates, settings.queue_background)))


_OF_PRIORITIES = re.compile(r".*\.priority[369]", re.DOTALL)
_OF_KOMBU = ("_kombu.", "unacked", "celeryev", "celery.pidbox", "reply.celery.pidbox")


def owner_of(name: str, settings: Settings) -> str | None:
    """Return who owns a queue, or a key of the same server, of that name; None if an activity may use it."""
    for field in ("queue_instances", "queue_delegates", "queue_background", "queue_reports"):
        if name == getattr(settings, field):
            return f"the engine (ACTS_{field.upper()})"
    if name.startswith(f"{settings.key_prefix}:"):
        return "the log, whose keys begin so (ACTS_KEY_PREFIX)"
    if scheme_of(settings.effective_broker_url or "").startswith("amqp") and _OF_PRIORITIES.fullmatch(name):
        return "tasks with a priority"
    return "Celery's transport" if name.startswith(_OF_KOMBU) else None


def queue(name: str, settings: Settings) -> Queue:
    """Return the durable queue of that name on an exchange of that name, as Celery itself would make it."""
    from kombu import Exchange, Queue

    return Queue(name, Exchange(name, type="direct"), routing_key=name, queue_arguments=_arguments(settings.queue_type))


def priority_queue(name: str, band: int, queue_type: str) -> Queue:
    """Return RabbitMQ's queue for the tasks of a queue whose priority is in this band; `alias` names that queue."""
    from kombu import Exchange, Queue

    own = f"{name}.priority{band}"
    return Queue(own, Exchange(""), routing_key=own, queue_arguments=_arguments(queue_type), alias=name)


def queues(settings: Settings) -> tuple[Queue, ...]:
    """Return the queues of `queue_names` for kombu."""
    return tuple(queue(name, settings) for name in queue_names(settings))


def reports_queue(settings: Settings) -> Queue:
    """Return the queue of the signs of life. No worker consumes it: the sweep reads it."""
    from kombu import Exchange, Queue

    name = settings.queue_reports
    return Queue(name, Exchange(""), routing_key=name, queue_arguments=_arguments(settings.queue_type))


def _arguments(queue_type: str) -> dict[str, str] | None:
    """Arguments that declare a queue at RabbitMQ. A classic queue has none, so existing queues still match."""
    return {"x-queue-type": queue_type} if queue_type != "classic" else None


def routes(settings: Settings) -> dict[str, dict[str, str]]:
    """Return Celery's `task_routes`. `EXECUTE_ACTIVITY` has none: its queue is the activity's."""
    return {
        EXECUTE_INSTANCE: {"queue": settings.queue_instances},
        PROBE: {"queue": settings.queue_instances},
        DELIVER: {"queue": settings.queue_instances},
        EXECUTE_DELEGATE: {"queue": settings.queue_delegates},
        EXECUTE_BACKGROUND: {"queue": settings.queue_background},
    }


CONTENT = "msgpack"


KEEPALIVE: dict[int, int] = (
    {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 3, socket.TCP_KEEPCNT: 3, socket.TCP_USER_TIMEOUT: 10_000}
    if sys.platform == "linux"
    else {}
)
"""Options of TCP sockets: the kernel gives a connection up on which nothing is acknowledged for ten seconds."""

_CERTIFICATE_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


def celery_configuration(settings: Settings) -> dict[str, object]:
    """Return the mapping for `Celery.config_from_object` or `app.conf.update`.

    Raises `NotConfigured` where no broker is.
    """
    broker_url = settings.require_broker()
    return {
        **_broker(broker_url),
        "broker_transport_options": transport_options(settings),
        # A worker outlives its broker: it waits for it at the start, and never gives up later (default: 100
        # tries).
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        # A server that is full, or a replica for a while, answers and refuses: it is waited for too.
        "broker_channel_error_retry": True,
        **_contents(),
        **_delivery(settings),
        **_results(settings),
        **_watching(settings),
        **_mailboxes(broker_url),
        # Activities wait more than they compute; scale over cores with more processes.
        "worker_concurrency": settings.concurrency,
    }


def transport_options(settings: Settings) -> dict[str, object]:
    """Return kombu's `transport_options` for the broker in effect."""
    scheme = scheme_of(settings.require_broker())
    if scheme.startswith("amqp"):
        # Without publisher confirms RabbitMQ may drop a message that the sender believes sent.
        return {"confirm_publish": True}
    options: dict[str, object] = {
        # No ledger of unacknowledged messages in Redis, which costs two transactions for each: what a dead worker had
        # in hand is found in the log within seconds, long before a visibility timeout is over.
        "ack_emulation": False,
        # kombu passes None over redis-py's own defaults, so a dead peer would be waited for without end.
        "socket_timeout": limits.SOCKET_TIMEOUT_SECONDS,
        "socket_connect_timeout": limits.SOCKET_CONNECT_TIMEOUT_SECONDS,
        "socket_keepalive": True,
        # Finds half-open sockets, also the blocking BRPOP's.
        "health_check_interval": 5,
        # `retry_on_timeout` stays out: it switches batch publishing off.
        "global_keyprefix": queue_prefix(settings),
    }
    if scheme == "sentinel":
        options["master_name"] = settings.sentinel_master
        if settings.sentinel_password is not None:
            options["sentinel_kwargs"] = {"password": settings.sentinel_password.get_secret_value()}
    return options


def queue_prefix(settings: Settings) -> str:
    """Return what the names of queues, mailboxes and channels begin with in Redis, so that two backends with prefixes
    of their own can share a database. The default prefix leaves names as Celery and its tools know them.
    """
    if scheme_of(settings.require_broker()).startswith("amqp") or settings.key_prefix == DEFAULT_PREFIX:
        return ""
    return f"{settings.key_prefix}:broker:"


def _broker(url: str) -> dict[str, object]:
    """Return the broker's address, and how its certificate is verified."""
    if scheme_of(url) != "amqps":
        return {"broker_url": url, **_encryption("broker_use_ssl", url)}
    # kombu hands none of these on to py-amqp, which looks at the name in a certificate only when it is given one.
    parts = urlsplit(url)
    files = {name[4:]: value for name, value in parse_qsl(parts.query) if name in _CERTIFICATE_FILES}
    encryption = {"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": parts.hostname, **files}
    return {"broker_url": url.partition("?")[0], "broker_use_ssl": encryption}


def _contents() -> dict[str, object]:
    return {
        "accept_content": [CONTENT],
        "result_accept_content": [CONTENT],
        "task_serializer": CONTENT,
        "result_serializer": CONTENT,
        # Celery's default: it is what exporters of others read. Ours hold nothing but short texts and numbers.
        "event_serializer": "json",
        # What a task returns goes into its success event and the worker's log: keep it to a glance.
        "task_annotations": {"*": {"resultrepr_maxsize": 64}},
    }


def _delivery(settings: Settings) -> dict[str, object]:
    return {
        "task_queues": queues(settings),
        "task_routes": routes(settings),
        "task_default_queue": settings.queue_instances,
        # Activities may name queues of their own.
        "task_create_missing_queues": True,
        "task_create_missing_queue_type": settings.queue_type,
        # Acknowledge after the work; and when a pool process is killed, not at all: acks_late alone would.
        "task_acks_late": True,
        "task_reject_on_worker_lost": True,
        # One message per free thread: what waits in a worker cannot be taken by another.
        "worker_prefetch_multiplier": 1,
        "timezone": "UTC",
        "enable_utc": True,
    }


def _results(settings: Settings) -> dict[str, object]:
    if settings.result_backend_url is None:
        return {"task_ignore_result": True}
    url = settings.result_backend_url.get_secret_value()
    return {
        "result_backend": url,
        "task_ignore_result": False,
        "result_expires": settings.retention_seconds,
        "redis_socket_timeout": limits.SOCKET_TIMEOUT_SECONDS,
        "redis_socket_connect_timeout": limits.SOCKET_CONNECT_TIMEOUT_SECONDS,
        # A unix socket knows no keepalive, and redis-py refuses to be asked for one.
        **({} if "socket" in scheme_of(url) else {"redis_socket_keepalive": True}),
        **_encryption("redis_backend_use_ssl", url),
    }


def _watching(settings: Settings) -> dict[str, object]:
    return {
        "worker_redirect_stdouts_level": "INFO",  # what an activity prints is no warning
        "worker_send_task_events": settings.send_events,
        "task_send_sent_event": settings.send_events,
        # One more event and one more write per task, for a state the progress stream already shows.
        "task_track_started": False,
        # The command that starts the worker decides about logging.
        "worker_hijack_root_logger": False,
    }


def _mailboxes(broker_url: str) -> dict[str, object]:
    """Make mailboxes in Redis that do not expire: kombu would need a script for that, and a user who may run scripts
    can block the server. They are removed when they are closed.
    """
    if scheme_of(broker_url).startswith("amqp"):
        return {}
    return {"control_queue_expires": None, "event_queue_expires": None}


def _encryption(option: str, url: str) -> dict[str, object]:
    """Ask for a verified certificate, which kombu does not for rediss:// by default. What the URL says still wins."""
    if scheme_of(url) != "rediss" or "ssl_cert_reqs=" in url:
        return {}
    return {option: {"ssl_cert_reqs": ssl.CERT_REQUIRED}}
