"""Layers: everything that `acts doctor` looks at, in the order in which one depends on the other.

A layer is well or not; a remedy says what to do, also about what may become a problem. Secrets never show. An error of
one server does not end the examination.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
import time
import timeit
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from ...broker_config import (
    ENVIRONMENT_PREFIX,
    BrokerConfigError,
    NotConfigured,
    Settings,
    find_server,
    is_cluster,
    mask_url,
    queue_names,
    redis_url_of,
    servers_of,
    unknown_variables,
)
from ...broker_config.addresses import plain_hosts, unverified_hosts
from ..errors import ActivitiesError, WorkerError
from ..runner.pool import refuse_old_libraries
from .options import DEBUG, Common, Failed, load_registry
from .output import counted, shortened

if TYPE_CHECKING:
    from celery import Celery

    from ..store.waiting import Deserted


LONGEST_ERROR: Final = 200
"""Characters shown of another library's error."""


@dataclass(slots=True)
class Layer:
    """The findings in one layer: `remedies` say what to do, one for each problem or warning."""

    layer: str
    detail: str = ""
    ok: bool = True
    remedies: list[str] = field(default_factory=list)

    def fail(self, detail: str, remedy: str) -> None:
        """Note a problem."""
        self.ok = False
        self.warn(detail, remedy)

    def warn(self, detail: str, remedy: str) -> None:
        """Note what may become a problem."""
        self.add(detail)
        self.remedies.append(remedy)

    def add(self, detail: str) -> None:
        """Note a fact."""
        self.detail = f"{self.detail}; {detail}" if self.detail else detail

    def to_dict(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        remedy = "; ".join(self.remedies) or None
        return {"layer": self.layer, "ok": self.ok, "detail": self.detail, "remedy": remedy}


@contextmanager
def noting_errors(layer: Layer, remedy: str) -> Iterator[None]:
    """Note any error that a server, or the way to it, raises."""
    try:
        yield
    except Exception as error:
        layer.fail(shortened(" ".join(f"{type(error).__name__}: {error}".split()), LONGEST_ERROR), remedy)


# All layers.

_PACKAGES: Final = ("acts-celery", "celery", "kombu", "redis", "msgpack")
_NOT_OURS: Final = frozenset({DEBUG})


def examine(common: Common) -> list[Layer]:
    """Look at every layer; raises for nothing that it finds."""
    layer, settings = _settings(common)
    if settings is None:
        return [layer, _versions()]
    return [_without_secrets(found, settings) for found in (layer, _versions(), *examine_backend(settings))]


def examine_backend(settings: Settings) -> Iterator[Layer]:
    """Look at what the settings name, in the order of `LAYERS`; a layer with nothing to say is left out."""
    found: dict[str, Layer] = {}
    is_configured = settings.effective_broker_url is not None or settings.effective_redis_url is not None
    for name, (_, needs) in LAYERS.items():
        if needs is not None and not found[needs].ok:
            continue
        layer = found[name] = examined(name, settings)
        if layer.detail:
            yield layer
        if name == "broker" and not is_configured:
            return
    if found["broker"].ok:
        yield from _workers_and_queues(settings)
    else:
        for name in ("workers", "queues"):
            yield Layer(name, "cannot be asked without the broker", False, ["fix the broker first"])


def examined(name: str, settings: Settings) -> Layer:
    """Look at one of `LAYERS`."""
    layer = Layer(name)
    LAYERS[name][0](layer, settings)
    return layer


def _settings(common: Common) -> tuple[Layer, Settings | None]:
    layer = Layer("settings")
    try:
        settings = common.settings()
    except BrokerConfigError as error:
        layer.fail("; ".join(str(error).splitlines()), "correct these values")
        return layer, None
    masked, variables = settings.masked(), {key.upper() for key in os.environ}
    shown = []
    for name in (name for name in type(settings).model_fields if name in settings.model_fields_set):
        origin = "environment" if ENVIRONMENT_PREFIX + name.upper() in variables else ".env"
        shown.append(f"{name}={masked[name]} ({'option' if name in common.overrides else origin})")
    layer.add(", ".join(shown) if shown else "all at their defaults")
    unknown = {name: meant for name, meant in unknown_variables(os.environ).items() if name not in _NOT_OURS}
    for name, meant in unknown.items():
        remedy = f"did you mean {meant}?" if meant else f"remove it, or see the settings that begin with {name[:5]}"
        layer.warn(f"{name} is no setting", remedy)
    return layer, settings


def _versions() -> Layer:
    layer = Layer("versions", f"python {platform.python_version()}")
    for package in _PACKAGES:
        try:
            layer.add(f"{package} {version(package)}")
        except PackageNotFoundError:
            if package == "acts-celery":
                layer.add("acts-celery not installed, run from its sources")
            else:
                layer.fail(f"{package} is missing", f"{sys.executable} -m pip install {package}")
    try:
        refuse_old_libraries()
    except NotConfigured as error:
        layer.warn("clients only: no worker runs in this environment", str(error))
    return layer


def _activities(layer: Layer, settings: Settings) -> None:
    try:
        load_registry(settings)
    except (ActivitiesError, Failed) as error:
        layer.fail(str(error), "correct the file, or ACTS_ACTIVITIES")
        return
    from ..registry.activities import registry

    for noun, names in (("activities", registry.activities), ("delegates", registry.delegates)):
        if names:
            layer.add(f"{len(names)} {noun}: {', '.join(sorted(names))}")
    if not layer.detail:
        layer.add("none are configured: delegates, or a model (latent calls), run all calls")
        layer.add("a client checks calls of code against what the workers announce (`acts contracts`)")


def _without_secrets(layer: Layer, settings: Settings) -> Layer:
    """Mask every password and key in the text of a layer, which may hold foreign errors."""
    for secret in sorted(settings.secrets(), key=len, reverse=True):
        layer.detail = layer.detail.replace(secret, "***")
    return layer


# The layer of MCP servers: whether each can be opened, and whether its tools are those that are admitted.


def _mcp(layer: Layer, settings: Settings) -> None:
    """Ask every MCP server for its tools."""
    if not settings.mcp:
        return
    from ..registry.mcp_tools import UNSET, read_admitted, tool_admissions
    from .serving import listed

    if settings.mcp_admitted is None:
        layer.warn("no tool is admitted", UNSET)
    try:
        admitted = read_admitted(settings)
    except ActivitiesError as error:
        layer.fail(str(error), "correct the file, or ACTS_MCP_ADMITTED")
        return
    for name, found in listed(settings, settings.mcp).items():
        if isinstance(found, WorkerError):
            # Where only the workers of its queue have it, that is right so.
            note = layer.fail if settings.mcp[name].queue is None else layer.warn
            note(str(found), f"start it, or correct ACTS_MCP: {name}")
            continue
        states = Counter(each.state for each in tool_admissions(name, found, admitted.get(name, {})))
        states_of_tools = (
            f"{name}: {', '.join(f'{count} {state}' for state, count in sorted(states.items())) or 'no tools'}"
        )
        if states["changed"] or states["gone"]:
            layer.warn(states_of_tools, f"look at `acts mcp tools {name}`, and admit the right ones")
        else:
            layer.add(states_of_tools)


# The layer of models: whether each that is configured can be loaded, and its server reached with its key.


def _models(layer: Layer, settings: Settings) -> None:
    """Probe every configured model, with nothing that costs."""
    from ..agent.asking import lacks_key, probed
    from ..registry.activities import registry
    from ..registry.models import BadRequest, KnownModels, ModelError

    for configured in KnownModels(settings, registry).configured():
        if lacks_key(configured):
            # A process that asks no model, such as a client, needs no key.
            layer.warn(f"{configured.model} has no key here", "set ACTS_MODEL_API_KEY where delegates run")
            continue
        try:
            layer.add(asyncio.run(probed(configured, registry)))
        except BadRequest as error:
            layer.fail(str(error), "correct ACTS_MODEL_API_KEY, or ACTS_MODEL_BASE_URL")
        except ModelError as error:
            layer.fail(str(error), "start its server, or correct ACTS_MODEL_BASE_URL")
        except WorkerError as error:
            layer.fail(str(error), "correct ACTS_MODEL, or ACTS_MODELS")
    if registry.models:
        layer.add(f"registered: {', '.join(sorted(registry.models))}")
    if not layer.detail:
        layer.add("none is configured: delegates must be code, and there can be no latent calls")


# The layer of what the operator says of tools: whether the file can be read, and what of it may not be meant so.


def _trust(layer: Layer, settings: Settings) -> None:
    if settings.trust is None:
        return
    from ..registry.activities import registry
    from ..registry.request_definitions import doubts, operator_trust

    try:
        layer.add(f"{settings.trust} speaks of {', '.join(sorted(operator_trust(settings).said)) or 'no tool'}")
        for doubt in doubts(settings, registry):
            layer.warn(doubt, "correct the file, or ignore this")
    except ActivitiesError as error:
        layer.fail(str(error), "correct the file, or ACTS_TRUST")


# Workers that run the same tool with different code (SPEC R17.1).

_MOST: Final = 5


def differences(code: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Iterator[str]:
    """Yield a few of the activities and delegates of which workers have different contracts or versions.

    `code` has what each worker announces: kind -> name -> [version, digest of the contract].
    """
    known: dict[tuple[str, str], dict[tuple[str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
    for worker, kinds in code.items():
        for kind in ("activities", "delegates"):
            for name, (version_, contract) in kinds.get(kind, {}).items():
                known[kind, name][version_, contract].append(worker)
    several = [(name, found) for (_, name), found in known.items() if len(found) > 1]
    for name, found in islice(several, _MOST):
        what = "contracts" if len({contract for _, contract in found}) > 1 else "versions"
        listed = (f"{number} ({', '.join(workers[:_MOST])})" for (number, _), workers in islice(found.items(), _MOST))
        yield f"workers have different {what} of {name}: {', '.join(listed)}"
    if len(several) > _MOST:
        yield f"workers have different code of {len(several) - _MOST} more"


# What broker, log and workers answer.

OLDEST_SERVER: Final = (6, 2)
CONNECT_SECONDS: Final = 3.0
ANSWER_SECONDS: Final = 1.5
PINGS: Final = 3
CLOCK_SECONDS: Final = 5
"""Clocks that differ by more are reported."""
_MANY_CLIENTS: Final = 0.8
ALONE_SECONDS: Final = 60
"""Seconds without a sweep, which comes every second, after which no worker looks after the runs."""

_FREES: Final = "delete runs that have ended: `acts delete --free 500MB` says which, with --yes it does"


def _broker(layer: Layer, settings: Settings) -> None:
    if settings.effective_broker_url is None and settings.effective_redis_url is None:
        try:
            layer.add(f"`acts run` brings its own, {find_server()}")
        except BrokerConfigError as error:
            layer.fail("`acts run` cannot bring its own", str(error))
        remedy = f"set {ENVIRONMENT_PREFIX}BROKER_URL, e.g. redis://localhost:6379/0, or use --broker"
        layer.fail("none is configured, so there is nothing to submit to", remedy)
        return
    if (url := _address(layer, settings.require_broker)) is None:
        return
    if (redis_url := redis_url_of(url)) is not None:
        with noting_errors(layer, "start the server, or correct ACTS_BROKER_URL"):
            _greet_redis(layer, settings, redis_url)
        return
    with noting_errors(layer, "start the broker, or correct ACTS_BROKER_URL"):
        from ..runner.application import make_client_application

        with make_client_application(settings).connection_for_write(connect_timeout=CONNECT_SECONDS) as connection:
            begun = time.perf_counter()
            connection.ensure_connection(max_retries=1, interval_start=0, timeout=CONNECT_SECONDS)
            layer.add(f"connected in {(time.perf_counter() - begun) * 1000:.1f} ms")
            properties = getattr(connection.connection, "server_properties", None) or {}
            if "product" in properties:
                layer.add(f"{properties['product']} {properties.get('version', '')}".strip())


def _log(layer: Layer, settings: Settings) -> None:
    if (url := _address(layer, settings.require_redis)) is not None:
        for one in (each := servers_of(url)):
            if len(each) > 1:
                layer.add(mask_url(one))
            with noting_errors(layer, f"start {mask_url(one)}, or correct ACTS_REDIS_URL"):
                _examine_storage(layer, _greet_redis(layer, settings, one), int(settings.limit_run_bytes))


def _pages(layer: Layer, settings: Settings) -> None:
    """Look at what `acts ui` reads, where that is not the log."""
    reading = settings.for_reading
    if reading is settings or (url := _address(layer, reading.require_redis)) is None:
        return
    with noting_errors(layer, "start the server, or correct ACTS_UI_REDIS_URL"):
        facts = _greet_redis(layer, reading, url, is_read_only=True)
        if facts.get("role") == "slave" and facts.get("master_link_status") != "up":
            layer.fail("it has lost its primary, and shows what was", "look at the log of the replica")


def _address(layer: Layer, require: Callable[[], str]) -> str | None:
    """Show the address of a server, and what is unsafe about it; None where it has none."""
    try:
        url = require()
    except BrokerConfigError as error:
        layer.fail("not configured", str(error))
        return None
    layer.add(mask_url(url))
    _warn_of_connection(layer, url)
    return url


def _warn_of_connection(layer: Layer, url: str) -> None:
    if hosts := plain_hosts(url):
        remedy = "use rediss:// or amqps://, or a network that no other host reads"
        layer.warn(f"{', '.join(hosts)} is contacted without encryption, and so is the password sent", remedy)
    if hosts := unverified_hosts(url):
        remedy = "take ssl_cert_reqs and ssl_check_hostname out of the URL; ?ssl_ca_certs=FILE names an authority"
        layer.warn(
            f"the certificate of {', '.join(hosts)} is not verified: another server could answer in its place", remedy
        )


def _runs(layer: Layer, settings: Settings) -> None:
    """Look at runs under way that no worker goes on with; after a restore from a backup these are all of them."""
    from ..store.connections import connect
    from ..store.living import Processes
    from ..store.run_list import RunList
    from ..store.scripts import date_of, server_ms

    with noting_errors(layer, "look at the server of the log"), connect(settings) as redis:
        runs = RunList(redis, settings.key_prefix)
        heard, left = runs.last_sweep(), runs.count_under_way()
        if heard is not None and left and server_ms(redis) - heard > ALONE_SECONDS * 1000:
            since = date_of(datetime.fromtimestamp(heard / 1000, UTC))
            layer.warn(
                f"no worker has looked after them since {since}: {counted(left, 'run')} as of then",
                "start workers; if the log was restored, calls that were at work then, or done since, are "
                "done again: `acts runs --status running`",
            )
        for silent in Processes(redis, settings.key_prefix).silent():
            layer.warn(
                f"calls wait for {silent}",
                "a call keeps Python's lock, or its connections are lost: `acts status RUN` names its calls; if it "
                "does not recover, end that process, and they continue elsewhere",
            )
        if foreign := runs.count_foreign():
            layer.warn(
                f"{counted(foreign, 'run')} of another version, which workers of this version do not continue",
                "start workers of that version, or `acts delete RUN --foreign`: `acts runs --status foreign`",
            )


def _dead_letters(layer: Layer, settings: Settings) -> None:
    """Count the calls that failed for good: the backend is well, but a person should look at them."""
    from ..store.connections import connect
    from ..store.waiting import DeadLetters

    with noting_errors(layer, "look at the server of the log"), connect(settings) as redis:
        if count := DeadLetters(redis, settings).count():
            layer.warn(str(count), "see `acts dead list`")


def _greet_redis(layer: Layer, settings: Settings, url: str, *, is_read_only: bool = False) -> Mapping[str, Any]:
    """Measure the latency of a server, and return its INFO. Raises what redis-py raises."""
    from ..store.connections import connect_once, server_facts
    from ..store.scripts import server_ms

    with connect_once(settings, url, timeout_seconds=CONNECT_SECONDS) as redis:
        ahead_seconds = server_ms(redis) / 1000 - time.time()
        latency_seconds = min(timeit.repeat(redis.time, number=1, repeat=PINGS))  # a full disk has PING refused
        facts = server_facts(redis)[0]
    name = str(facts.get("server_name") or "redis")
    shown = str(facts.get(f"{name}_version") or facts.get("redis_version"))
    layer.add(f"{name} {shown}, {latency_seconds * 1000:.2f} ms")
    # Valkey says under `redis_version` which Redis it is compatible with.
    compatible = str(facts.get("redis_version", "0"))
    if tuple(int(part) for part in compatible.split(".")[:2] if part.isdigit()) < OLDEST_SERVER:
        layer.fail(f"{compatible} is too old", "use Redis 6.2 or newer, or Valkey")
    if abs(ahead_seconds) > CLOCK_SECONDS:
        how = "ahead of" if ahead_seconds > 0 else "behind"
        layer.warn(
            f"its clock is {abs(ahead_seconds):.0f} s {how} this machine's",
            "have both set by chrony or systemd-timesyncd; times of the log are those of its server",
        )
    clients, most = int(facts.get("connected_clients", 0)), int(facts.get("maxclients", 0))
    if most and clients > _MANY_CLIENTS * most:
        layer.warn(
            f"{clients} of its {most} connections are in use",
            "raise its maxclients: a worker process takes up to 15 of them, fewer with ACTS_BROKER_CONNECTIONS=2",
        )
    if facts.get("role") == "slave" and not is_read_only:
        layer.fail("it is a replica, which takes no writes", "give the address of the primary")
    if facts.get("cluster_enabled") and not is_cluster(url):
        layer.fail("it is part of a Redis Cluster", "write redis+cluster:// for the log; a cluster holds no broker")
    return facts


def _examine_storage(layer: Layer, facts: Mapping[str, Any], run_bytes: int) -> None:
    """Check that the server keeps what is written."""
    policy, most = str(facts.get("maxmemory_policy", "noeviction")), int(facts.get("maxmemory", 0))
    if policy != "noeviction":
        note = layer.fail if most else layer.warn
        note(f"maxmemory-policy is {policy}: runs may lose messages", "CONFIG SET maxmemory-policy noeviction")
    if "err" in (facts.get("aof_last_write_status"), facts.get("rdb_last_bgsave_status")):
        layer.fail("it cannot write to its disk, and so takes nothing (MISCONF)", "give its disk room")
    used = int(facts.get("used_memory", 0))
    if most and used >= most:
        layer.fail("it is full", f"raise maxmemory, or {_FREES}")
    elif most and used > 0.9 * most:
        layer.warn(f"{used * 100 // most} % of its memory is in use", f"raise maxmemory, or {_FREES}")
    if most and run_bytes > most // 2:
        layer.warn(
            f"one run may write {run_bytes} bytes, more than half of its {most}",
            "lower ACTS_LIMIT_RUN_BYTES, or raise maxmemory",
        )
    if not int(facts.get("aof_enabled", 0)):
        layer.warn(
            "appendonly is off: a restart of the server loses runs", "CONFIG SET appendonly yes, and in its file"
        )
    elif facts.get("aof_last_write_status", "ok") != "ok":
        layer.fail("the append-only file cannot be written", "look at the server's disk and its log")


LAYERS: Final[dict[str, tuple[Callable[[Layer, Settings], None], str | None]]] = {
    "activities": (_activities, None),
    "trust": (_trust, None),
    "models": (_models, None),
    "mcp": (_mcp, None),
    "broker": (_broker, None),
    "log": (_log, None),
    "pages": (_pages, None),
    "runs": (_runs, "log"),
    "dead letters": (_dead_letters, "log"),
}
"""The layers that are checked before the workers, in order: how, and the layer that has to be well for it."""


def _workers_and_queues(settings: Settings) -> Iterator[Layer]:
    from ..runner.application import make_client_application

    app, workers, queues = make_client_application(settings), Layer("workers"), Layer("queues")
    serving = _ask_workers(workers, app, settings)
    yield workers
    _count_waiting(queues, app, settings, serving)
    yield queues


def _ask_workers(layer: Layer, app: Celery, settings: Settings) -> dict[str, list[str]]:
    """Look at the workers that answer; returns the queues that each serves."""
    serving: dict[str, list[str]] = {}
    with noting_errors(layer, "look at the broker"):
        answers = app.control.inspect(timeout=ANSWER_SECONDS).stats() or {}
        health = {name: answer["health"] for name, answer in sorted(answers.items()) if "health" in answer}
        serving = {name: found["queues"] for name, found in health.items()}
        layer.add(", ".join(f"{name} ({', '.join(queues)})" for name, queues in serving.items()))
        if not serving:
            layer.fail(f"no worker answered within {ANSWER_SECONDS:g} s", "start one: acts worker")
        for name, found in health.items():
            for what, problem in found["problems"].items():
                layer.fail(f"{name}: {what} {problem}", f"look at the log of {name}, and start it again")
            if lacking := _lacking(found, settings):
                layer.fail(f"{name} does not know {', '.join(lacking)}", f"start {name} with the same --activities")
        if others := _with_another_trust(health, settings):
            layer.warn(
                f"ACTS_TRUST says something else at {', '.join(others)} than here: each holds calls by its own file",
                "give all clients and workers the same file",
            )
        _add_refusals(layer, {name: answers[name].get("refused", {}) for name in health})
        for what in differences({name: found.get("code", {}) for name, found in health.items()}):
            layer.warn(what, "start all workers with the same code, unless a new version is being rolled out")
    return serving


def _add_refusals(layer: Layer, counts: Mapping[str, Mapping[str, int]]) -> None:
    """Note what the workers have refused since they started, and errors in taking tasks."""
    for name, refused in counts.items():
        kinds = dict(refused)
        if errors := kinds.pop("errors", 0):
            layer.fail(
                f"{name} failed to take {counted(errors, 'task')}", f"look at the tracebacks in the log of {name}"
            )
        if kinds:
            many = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
            layer.warn(f"{name} has refused {many}", f"look at the log of {name}: each refusal is a line")


def _with_another_trust(health: Mapping[str, Mapping[str, Any]], settings: Settings) -> list[str]:
    """Return the workers with another file of the operator; older versions do not announce theirs."""
    from ..registry.request_definitions import digest_of_trust

    try:
        own = digest_of_trust(settings)
    except ActivitiesError:
        return []  # the layer of trust says so
    return [name for name, found in health.items() if found.get("trust", own) != own]


def _lacking(health: Mapping[str, Any], settings: Settings) -> list[str]:
    """Return the registered activities and delegates that calls on a worker's queues may need, and that it lacks.

    A worker on the queue of the instances needs all activities: it decides where a call goes.
    """
    from ..registry.activities import registry

    queues, knows = health["queues"], health.get("knows")
    if knows is None:  # of a version before
        return []
    needed = [name for name, one in registry.activities.items() if {settings.queue_instances, one.queue} & {*queues}]
    delegates = registry.delegates if settings.queue_delegates in queues else ()
    lacking = {*needed} - {*knows["activities"]} | {*delegates} - {*knows["delegates"]}
    return sorted(lacking)


def _count_waiting(layer: Layer, app: Celery, settings: Settings, serving: Mapping[str, list[str]]) -> None:
    """Count the messages in each queue that submissions need, and the workers that serve it."""
    from ..broker.transport import queue_length
    from ..registry.activities import registry

    with noting_errors(layer, "look at the broker"), app.connection_for_read() as connection:
        deserted = []
        for name in dict.fromkeys((*queue_names(settings), *registry.queues())):
            servers = sum(name in queues for queues in serving.values())
            layer.add(f"{name} {queue_length(connection, name)} waiting, {counted(servers, 'worker')}")
            if not servers:
                deserted.append(name)
        for one in _left_behind(settings, serving):
            many = f"{counted(one.calls, 'call')} lie there, one of run {one.run}"
            remedy = f"start a worker with the code of before (acts worker --queues {one.queue}), or cancel the run"
            what = many if one.calls > 1 else f"a call of run {one.run} lies there"
            layer.fail(f"no worker serves {one.queue}: {what}", remedy)
        if deserted:
            layer.fail(f"no worker serves {', '.join(deserted)}", f"acts worker --queues {','.join(deserted)}")


def _left_behind(settings: Settings, serving: Mapping[str, list[str]]) -> list[Deserted]:
    """Return the queues with calls of runs that no code names any more and no worker serves."""
    from ..registry.activities import registry
    from ..store.connections import connect
    from ..store.waiting import deserted

    if settings.effective_redis_url is None:
        return []
    known = {*queue_names(settings), *registry.queues(), *(queue for queues in serving.values() for queue in queues)}
    with connect(settings) as redis:
        return deserted(redis, settings.key_prefix, known)
