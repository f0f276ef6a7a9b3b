"""Typed settings, and what follows from them: Celery's configuration, queues, routes and an embedded server.

Imports neither `protocol` nor `worker`. `load()` gives the settings in effect,
`celery_configuration(settings)` what Celery is configured with.
"""

from .addresses import (
    ENVIRONMENT_PREFIX,
    SecretUrl,
    broker_url_of,
    is_cluster,
    is_sentinel,
    is_spread,
    mask_url,
    read_cluster,
    read_sentinels,
    redis_url_of,
    servers_of,
)
from .configuration import (
    DELIVER,
    EXECUTE_ACTIVITY,
    EXECUTE_BACKGROUND,
    EXECUTE_DELEGATE,
    EXECUTE_INSTANCE,
    KEEPALIVE,
    PROBE,
    SEVERAL,
    celery_configuration,
    priority_queue,
    queue,
    queue_names,
    queues,
    reports_queue,
    routes,
    transport_options,
)
from .embedded import EmbeddedServer, GuardedProcess, find_server
from .errors import BrokerConfigError, NotConfigured, ServerUnavailable, SettingsError
from .loading import load, unknown_variables
from .mcp import McpServer
from .models import ConfiguredModel, Price
from .settings import Settings

__all__ = [
    "DELIVER",
    "ENVIRONMENT_PREFIX",
    "EXECUTE_ACTIVITY",
    "EXECUTE_BACKGROUND",
    "EXECUTE_DELEGATE",
    "EXECUTE_INSTANCE",
    "KEEPALIVE",
    "PROBE",
    "SEVERAL",
    "BrokerConfigError",
    "ConfiguredModel",
    "EmbeddedServer",
    "GuardedProcess",
    "McpServer",
    "NotConfigured",
    "Price",
    "SecretUrl",
    "ServerUnavailable",
    "Settings",
    "SettingsError",
    "broker_url_of",
    "celery_configuration",
    "find_server",
    "is_cluster",
    "is_sentinel",
    "is_spread",
    "load",
    "mask_url",
    "priority_queue",
    "queue",
    "queue_names",
    "queues",
    "read_cluster",
    "read_sentinels",
    "redis_url_of",
    "reports_queue",
    "routes",
    "servers_of",
    "transport_options",
    "unknown_variables",
]
