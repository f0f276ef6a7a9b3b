"""Keys of web hooks, as Standard Webhooks writes them."""

from __future__ import annotations

import base64

import pytest

from acts_celery.broker_config import SettingsError, load
from acts_celery.broker_config.tokens import signing_key


def _encoded(key: bytes) -> str:
    return "whsec_" + base64.b64encode(key).decode()


def test_a_key_is_base64_behind_whsec_and_a_text_otherwise() -> None:
    assert signing_key(_encoded(b"a secret of the tests")) == b"a secret of the tests"
    assert signing_key("a text of some length") == b"a text of some length"


@pytest.mark.parametrize(
    ("secret", "said"),
    [
        ("whsec_no base64, and long enough", "not base64"),
        ("whsec_bm90IHBhZGRlZA", "not base64"),
        (_encoded(b"short"), "has 5 bytes"),
        ("whsec_", "has 0 bytes"),
        ("a short text", "has 12 bytes"),
    ],
)
def test_a_key_that_is_short_or_garbled_is_refused_and_not_shown(secret: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said) as refused:
        load(env_file=None, hold_webhook_url="https://example.org/", hold_webhook_secret=secret)
    assert "HOLD_WEBHOOK_SECRET" in str(refused.value)
    assert secret.removeprefix("whsec_") not in str(refused.value) or secret == "whsec_"
