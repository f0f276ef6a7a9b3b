"""TLS to the broker and to the log: used where the address says so, and no certificate is taken on trust."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kombu.pools
import pytest

from acts_celery import Client, InfrastructureError
from acts_celery.broker_config import EmbeddedServer, load
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.runner.application import make_client_application
from tests.worker.backend import ACTIVITIES, MODEL, Backend, Meeting

from .certificates import OPENSSL, Authority, authority, certificate
from .servers import free_port, redis_server
from .tls import tls_in_front_of

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="there is no openssl to make certificates with")

PASSWORD = "pw-canary-c2"
ECHO = {"_tool": "echo", "value": 1, "_outputPath": "†state.a"}


@dataclass(frozen=True)
class Encrypted:
    """A server with a password behind TLS, whose certificate is for `localhost`."""

    port: int
    plain: str
    signer: Authority
    stranger: Authority
    folder: Path
    meeting: Meeting

    def url(self, host: str = "localhost", *, trusting: Authority | None) -> str:
        trust = "" if trusting is None else f"?ssl_ca_certs={trusting.certificate}"
        return f"rediss://:{PASSWORD}@{host}:{self.port}/0{trust}"

    def backend(self, broker: str, redis: str) -> Backend:
        given: dict[str, Any] = {"activities": (str(ACTIVITIES),), "model": MODEL}
        return Backend(load(env_file=None, broker_url=broker, redis_url=redis, **given), self.meeting, self.folder)


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    folder = tmp_path_factory.mktemp("tls")
    signer, stranger = authority(folder / "ours"), authority(folder / "theirs")
    port = free_port()
    with ExitStack() as stack:
        stack.enter_context(redis_server(folder, f"port {port}", f"requirepass {PASSWORD}"))
        secured = stack.enter_context(tls_in_front_of(port, *certificate(signer, folder)))
        elsewhere = stack.enter_context(EmbeddedServer())
        plain = f"redis://:{PASSWORD}@localhost:{port}/0"
        yield Encrypted(secured, plain, signer, stranger, folder, Meeting(elsewhere.redis_url))


def test_broker_log_worker_and_client_talk_over_tls(encrypted: Encrypted) -> None:
    url = encrypted.url(trusting=encrypted.signer)
    backend = encrypted.backend(url, url)
    ask = {"_tool": "ask", "_delegate": "showContext", "_outputPath": "†state.b"}
    with backend.worker():
        assert backend.run([ECHO, ask]).data() == {"state": {"a": 1, "b": {"context": []}}}


@pytest.mark.nightly
@pytest.mark.nightly
def test_a_server_that_asks_for_a_clients_certificate_takes_one_that_it_trusts_and_no_other(
    encrypted: Encrypted, tmp_path: Path
) -> None:
    plain = int(encrypted.plain.rpartition(":")[2].partition("/")[0])
    server = certificate(encrypted.signer, tmp_path)
    ours = certificate(encrypted.signer, tmp_path, name="ours")
    theirs = certificate(encrypted.stranger, tmp_path, name="theirs")
    with tls_in_front_of(plain, *server, asks_for=encrypted.signer.certificate) as port:

        def backend(shown: tuple[Path, Path] | None) -> Backend:
            options = f"&ssl_certfile={shown[0]}&ssl_keyfile={shown[1]}" if shown is not None else ""
            trust = f"?ssl_ca_certs={encrypted.signer.certificate}"
            url = f"rediss://:{PASSWORD}@localhost:{port}/0{trust}{options}"
            return encrypted.backend(url, url)

        known = backend(ours)
        with known.worker():
            assert known.run([ECHO]).data() == {"state": {"a": 1}}
        for shown in (None, theirs):
            with Client(backend(shown).settings) as client, pytest.raises(InfrastructureError):
                client.submit(solution={"calls": [ECHO]})


@pytest.mark.parametrize(("host", "trusted"), [("localhost", "stranger"), ("localhost", None), ("127.0.0.1", "signer")])
def test_a_certificate_that_is_not_trusted_is_refused(encrypted: Encrypted, host: str, trusted: str | None) -> None:
    url = encrypted.url(host, trusting=None if trusted is None else getattr(encrypted, trusted))
    refused = r"certificate of the log at rediss.* is not to be trusted"
    with (
        Client(encrypted.backend(encrypted.plain, url).settings) as client,
        pytest.raises(InfrastructureError, match=refused) as log,
    ):
        client.submit(solution={"calls": [ECHO]})
    for pools in (kombu.pools.producers, kombu.pools.connections):
        pools.clear()  # kept by address, whatever they trust; others in this process go on using theirs
    publisher = Publisher(make_client_application(encrypted.backend(url, encrypted.plain).settings))
    with pytest.raises(InfrastructureError, match="certificate verify failed") as broker:
        publisher.waiting("instances")
    assert PASSWORD not in f"{log.value} {broker.value}"
