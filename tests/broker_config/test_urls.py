"""How addresses are shown, checked and turned into one another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis

from acts_celery.broker_config import SecretUrl, broker_url_of, mask_url, read_sentinels, redis_url_of
from acts_celery.broker_config.addresses import Sentinels, plain_hosts, unverified_hosts


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://:secret@localhost/0", "redis://:***@localhost/0"),
        ("amqps://user:secret@host:5671/vhost", "amqps://user:***@host:5671/vhost"),
        ("redis+socket://:secret@/run/s?virtual_host=1", "redis+socket://:***@/run/s?virtual_host=1"),
        ("redis://secret@localhost", "redis://***@localhost"),
        ("redis://localhost/0?password=secret&db=1", "redis://localhost/0?password=***&db=1"),
        ("sentinel://:secret@a:1;sentinel://:secret@b:2", "sentinel://:***@a:1;sentinel://:***@b:2"),
        ("redis://:sec;r/e?t@@localhost/0", "redis://:***@localhost/0"),
        ("unix:///run/redis.sock?db=3", "unix:///run/redis.sock?db=3"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert mask_url(url) == shown
    assert shown in repr(SecretUrl(url))
    assert str(SecretUrl(url)) == shown


@given(password=st.text(st.characters(codec="utf-8"), min_size=1).map(lambda text: f"S€{text}€S"))
def test_no_password_however_written_shows_through(password: str) -> None:
    assert "S€" not in mask_url(f"redis://user:{password}@localhost:6379/0")


@pytest.mark.parametrize(
    ("broker", "redis"),
    [
        ("redis://:pw@host:6379/2", "redis://:pw@host:6379/2"),
        ("rediss://host/0", "rediss://host/0"),
        ("redis+socket:///run/my%20redis/s", "unix:///run/my%20redis/s"),
        ("redis+socket://u:p%40w@/run/s?virtual_host=3", "unix://u:p%40w@/run/s?db=3"),
    ],
)
def test_one_address_serves_as_broker_and_as_log(broker: str, redis: str) -> None:
    assert redis_url_of(broker) == redis
    assert broker_url_of(redis) == broker


def test_a_certificate_requirement_in_kombus_words_is_put_into_redis_pys() -> None:
    assert redis_url_of("rediss://host/0?ssl_cert_reqs=CERT_REQUIRED") == "rediss://host/0?ssl_cert_reqs=required"


def test_a_converted_socket_address_means_the_same_to_redis_py() -> None:
    url = redis_url_of("redis+socket://user:p%40w@/run/s?virtual_host=3")
    assert url is not None
    with Redis.from_url(url) as client:
        options = client.connection_pool.connection_kwargs
        assert (options["path"], options["db"], options["username"], options["password"]) == (
            "/run/s",
            3,
            "user",
            "p@w",
        )


@pytest.mark.parametrize("broker", ["amqp://host//", "sentinel://a:1;redis://b", "redis://a;redis://b"])
def test_a_broker_that_is_neither_a_single_redis_nor_sentinels_cannot_be_the_log(broker: str) -> None:
    assert redis_url_of(broker) is None


def test_an_address_of_sentinels_is_read_as_kombu_does() -> None:
    url = "sentinel://us%40er:p%2Fw@a:1/3;sentinel://b"
    assert redis_url_of(url) == url
    assert read_sentinels(url) == Sentinels((("a", 1), ("b", 26379)), "us@er", "p/w", 3)
    assert "p/w" not in repr(read_sentinels(url))
    assert read_sentinels("sentinel://a") == Sentinels((("a", 26379),), None, None, 0)


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("redis://:secret@far:6379/0", ("far",)),
        ("amqp://user:secret@far//", ("far",)),
        ("sentinel://one:26379;sentinel://localhost:26379", ("one",)),
        ("rediss://:secret@far:6379/0", ()),
        ("amqps://user:secret@far//", ()),
        ("redis://127.0.0.1:6379/0", ()),
        ("redis://[::1]:6379/0", ()),
        ("redis+socket:///run/redis.sock", ()),
    ],
)
def test_hosts_that_are_spoken_to_without_encryption_are_found(url: str, hosts: tuple[str, ...]) -> None:
    assert plain_hosts(url) == hosts


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        ("rediss://:secret@far:6379/0?ssl_cert_reqs=none", ("far",)),
        ("rediss://far/0?ssl_cert_reqs=CERT_NONE", ("far",)),
        ("rediss://far/0?ssl_cert_reqs=optional", ("far",)),
        ("rediss://far/0?ssl_check_hostname=false", ("far",)),
        ("rediss+cluster://far:6379?ssl_cert_reqs=none", ("far",)),
        ("rediss://far/0?ssl_cert_reqs=required&ssl_ca_certs=/ca.pem", ()),
        ("rediss://far/0", ()),
        ("amqps://far//?ssl_cert_reqs=none", ()),  # it is verified all the same (see `configuration`)
    ],
)
def test_hosts_whose_certificates_are_not_verified_are_found(url: str, hosts: tuple[str, ...]) -> None:
    assert unverified_hosts(url) == hosts
