"""RabbitMQ for a broker, the log in Redis: the same runs, and whoever carries out remote calls has no Redis at all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kombu.pools
import pytest

from acts_celery import InfrastructureError
from acts_celery.broker_config import EmbeddedServer, load
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.runner.application import make_client_application
from acts_celery.worker.telemetry.metrics import QueueMetrics, QueueReader
from tests.worker.backend import ACTIVITIES, MODEL, Backend, Meeting, meeting_url
from tests.worker.test_priorities import overtakes

from .broker_messages import packed, task_body
from .certificates import OPENSSL, Authority, authority, certificate
from .rabbitmq import BINARY, control, kill, rabbitmq_server
from .servers import free_port

pytestmark = pytest.mark.skipif(BINARY is None or OPENSSL is None, reason="there is no rabbitmq-server here")

ECHO = {"_tool": "echo", "value": 1, "_outputPath": "†state.a"}


@dataclass(frozen=True)
class Rabbit:
    port: int
    tls_port: int
    signer: Authority
    stranger: Authority
    redis_url: str
    meeting: Meeting
    folder: Path

    def backend(
        self, name: str, *, url: str | None = None, redis_url: str | None = None, queue_type: str = "classic"
    ) -> Backend:
        settings = load(
            env_file=None,
            broker_url=url or f"amqp://guest:guest@127.0.0.1:{self.port}//",
            redis_url=redis_url,
            queue_type=queue_type,
            activities=(str(ACTIVITIES),),
            model=MODEL,
        )
        backend = Backend(settings, self.meeting, self.folder)
        backend.log = self.folder / f"{name}.log"
        return backend


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rabbit]:
    folder = tmp_path_factory.mktemp("rabbit")
    signer, stranger = authority(folder / "ours"), authority(folder / "theirs")
    signed, key = certificate(signer, folder)
    tls_port = free_port()
    lines = (
        f"listeners.ssl.1 = 127.0.0.1:{tls_port}",
        f"ssl_options.cacertfile = {signer.certificate}",
        f"ssl_options.certfile = {signed}",
        f"ssl_options.keyfile = {key}",
        "ssl_options.verify = verify_none",
    )
    with ExitStack() as stack:
        port = stack.enter_context(rabbitmq_server(folder, *lines))
        server = stack.enter_context(EmbeddedServer())
        meeting = Meeting(meeting_url(server))
        yield Rabbit(port, tls_port, signer, stranger, server.redis_url, meeting, folder)


def test_a_run_with_every_kind_of_call_completes(rabbit: Rabbit) -> None:
    instances = rabbit.backend("instances", redis_url=rabbit.redis_url)
    remote = rabbit.backend("remote")
    calls: list[dict[str, Any]] = [
        {"_tool": "ask", "_delegate": "showContext", "_scopes": ["state"], "_outputPath": "†data.seen"},
        {"_tool": "note", "name": "told"},
        {"_tool": "remoteAdd", "a": 1, "b": 2, "_outputPath": "†data.sum"},
        {"_tool": "echo", "value": "†data.sum.sum", "_outputPath": "†state.b"},
    ]
    with instances.worker("-Q", "instances"), remote.worker("-Q", "delegates,background,lathe"):
        result = instances.run(calls, [{"type": "state", "a": 1}])
        assert result.data() == {
            "state": {"a": 1, "b": 3},
            "data": {"seen": {"context": [{"type": "state", "a": 1}]}, "sum": {"sum": 3}},
        }
        assert instances.meeting.take("told")["call"]["name"] == "told"
        assert Publisher(make_client_application(instances.settings)).waiting("instances") == 0


@pytest.mark.parametrize("tool", ["echo", "echoFar"])
def test_urgent_runs_overtake_those_that_wait_and_none_starves(rabbit: Rabbit, tool: str) -> None:
    overtakes(rabbit.backend(f"urgent-{tool}", redis_url=rabbit.redis_url), tool)


def test_figures_count_what_lies_in_its_queues(rabbit: Rabbit) -> None:
    backend = rabbit.backend("figures", redis_url=rabbit.redis_url)
    reader = QueueReader(make_client_application(backend.settings), None, "", ["instances", "never.used"])
    before = reader.read()["instances"].tasks
    plan = {"type": "plan", "calls": [{"_tool": "echo", "value": "†state.n", "_outputPath": "†state.a"}]}
    instances = [{"type": "state", "_instance": f"n{n}", "n": n} for n in range(30)]
    runs = [backend.client.submit([plan, *instances], priority=priority) for priority in (0, 5)]
    assert reader.read() == {"instances": QueueMetrics(before + 60, None), "never.used": QueueMetrics(0, None)}
    for run in runs:
        run.cancel()


@pytest.mark.nightly
def test_a_user_without_the_queues_of_priorities_serves_the_others(rabbit: Rabbit) -> None:
    own = "^(?!.*[.]priority)"
    control(rabbit.folder, "add_user", "few", "few")
    control(rabbit.folder, "set_permissions", "few", own, ".*", own)
    url = f"amqp://few:few@127.0.0.1:{rabbit.port}//"
    backend = rabbit.backend("few", url=url, redis_url=rabbit.redis_url)
    with backend.worker():
        assert backend.run([ECHO]).status == "completed"
    assert "tasks with a priority are not taken" in backend.log.read_text()


@pytest.mark.nightly
def test_quorum_queues_carry_the_same_and_outlast_a_killed_worker(rabbit: Rabbit, tmp_path: Path) -> None:
    with rabbitmq_server(tmp_path) as port:
        url = f"amqp://guest:guest@127.0.0.1:{port}//"
        quorum = rabbit.backend("quorum", url=url, redis_url=rabbit.redis_url, queue_type="quorum")
        with quorum.worker() as first:
            run = quorum.client.submit(
                solution={"calls": [{"_tool": "hangOnceFar", "name": "q", "_outputPath": "†data.far"}]}, priority=9
            )
            quorum.meeting.take("hanging:q")
            first.kill()
        with quorum.worker():
            assert quorum.wait(run.id).status == "completed"
            assert quorum.run([ECHO, {"_tool": "note", "name": "told"}]).status == "completed"
        classic = rabbit.backend("classic", url=url, redis_url=rabbit.redis_url)
        said = "RabbitMQ has a queue of another kind than is asked for"
        with pytest.raises(AssertionError, match=said), classic.worker():
            pass


@pytest.mark.nightly
@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
def test_a_server_that_ends_and_comes_back_loses_nothing(rabbit: Rabbit, tmp_path: Path, queue_type: str) -> None:
    calls = [
        {"_tool": "waitAtGate", "gate": queue_type, "value": 1, "_outputPath": "†state.a"},
        *({"_tool": "remoteAdd", "a": "†state.a", "b": n, "_outputPath": f"†data.s{n}"} for n in range(50)),
        {"_tool": "note", "name": f"told-{queue_type}", "after": "†data.s49"},
    ]
    with ExitStack() as first:
        port = first.enter_context(rabbitmq_server(tmp_path))
        url = f"amqp://guest:guest@127.0.0.1:{port}//"
        backend = rabbit.backend(f"ended-{queue_type}", url=url, redis_url=rabbit.redis_url, queue_type=queue_type)
        with backend.worker() as worker:
            run = backend.client.submit(solution={"calls": calls}, priority=6)
            backend.meeting.take(f"at:{queue_type}")
            if queue_type == "classic":  # one of 3.10 loses quorum queues where it is killed soon after they were made
                kill(tmp_path)
            first.close()
            backend.meeting.open_gate(queue_type)
            with rabbitmq_server(tmp_path, port=port):
                assert backend.wait(run.id).data()["data"]["s49"] == {"sum": 50}
                backend.meeting.take(f"told-{queue_type}")
                assert worker.poll() is None


def test_what_is_no_task_of_ours_is_refused_here_too(rabbit: Rabbit) -> None:
    backend = rabbit.backend("refusing", redis_url=rabbit.redis_url)
    app = make_client_application(backend.settings)
    odd = [
        (task_body(b"x"), "application/x-msgpack", {"task": ["x"], "id": "1"}),
        (b"\x80\x04N.", "application/x-python-serialize", {"task": "acts.deliver", "id": "1"}),
        (packed(5), "application/x-msgpack", {"task": "acts.deliver", "id": "1"}),
    ]
    with backend.worker() as process:
        with app.connection_for_write() as connection, connection.channel() as channel:
            for body, content_type, headers in odd:
                message = channel.prepare_message(body, content_type=content_type, headers=headers)
                channel.basic_publish(message, exchange="instances", routing_key="instances")
        assert backend.run([ECHO]).status == "completed"
        assert process.poll() is None
    assert backend.log.read_text().count("is refused") == len(odd)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("host", "trusted", "is_taken"),
    [("localhost", "signer", True), ("localhost", "stranger", False), ("127.0.0.1", "signer", False)],
)
def test_over_tls_only_the_right_certificate_is_taken(rabbit: Rabbit, host: str, trusted: str, is_taken: bool) -> None:
    for pools in (kombu.pools.producers, kombu.pools.connections):
        pools.clear()  # kept by address, whatever they trust; others in this process go on using theirs
    trust = getattr(rabbit, trusted).certificate
    url = f"amqps://guest:guest@{host}:{rabbit.tls_port}//?ssl_ca_certs={trust}"
    publisher = Publisher(make_client_application(rabbit.backend("secure", url=url).settings))
    if is_taken:
        assert publisher.waiting("never used") == 0
    else:
        with pytest.raises(InfrastructureError, match="certificate verify failed"):
            publisher.waiting("never used")


@pytest.mark.nightly
def test_a_server_that_asks_for_a_clients_certificate_takes_one_that_it_trusts_and_no_other(
    rabbit: Rabbit, tmp_path: Path
) -> None:
    signed, key = certificate(rabbit.signer, tmp_path)
    ours = certificate(rabbit.signer, tmp_path, name="ours")
    theirs = certificate(rabbit.stranger, tmp_path, name="theirs")
    tls_port = free_port()
    lines = (
        f"listeners.ssl.1 = 127.0.0.1:{tls_port}",
        f"ssl_options.cacertfile = {rabbit.signer.certificate}",
        f"ssl_options.certfile = {signed}",
        f"ssl_options.keyfile = {key}",
        "ssl_options.verify = verify_peer",
        "ssl_options.fail_if_no_peer_cert = true",
    )

    def backend(name: str, shown: tuple[Path, Path] | None) -> Backend:
        options = f"&ssl_certfile={shown[0]}&ssl_keyfile={shown[1]}" if shown is not None else ""
        url = f"amqps://guest:guest@localhost:{tls_port}//?ssl_ca_certs={rabbit.signer.certificate}{options}"
        return rabbit.backend(name, url=url, redis_url=rabbit.redis_url)

    with rabbitmq_server(tmp_path, *lines):
        known = backend("known", ours)
        with known.worker():
            call = {"_tool": "remoteAdd", "a": 1, "b": 2, "_outputPath": "†data.sum"}
            assert known.run([call]).data() == {"data": {"sum": {"sum": 3}}}
        for name, shown in (("none", None), ("stranger", theirs)):
            for pools in (kombu.pools.producers, kombu.pools.connections):
                pools.clear()
            publisher = Publisher(make_client_application(backend(name, shown).settings))
            with pytest.raises(InfrastructureError):
                publisher.waiting("never used")


def test_a_server_that_is_short_of_memory_is_an_error_and_is_not_waited_for_without_end(tmp_path: Path) -> None:
    with rabbitmq_server(tmp_path, "vm_memory_high_watermark.absolute = 1MB") as port:
        settings = load(env_file=None, broker_url=f"amqp://guest:guest@127.0.0.1:{port}//")
        publisher = Publisher(make_client_application(settings))

        def tell_often() -> None:
            until = time.monotonic() + 60  # until it has looked at its memory, it takes everything
            while time.monotonic() < until:
                publisher.tell_cancelled("key")

        with pytest.raises(InfrastructureError, match="short of memory or disk"):
            tell_often()
