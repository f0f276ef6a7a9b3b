"""What cannot be seen is written as an escape: to people, to terminals and to models (SPEC R12.5)."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol.errors import INVISIBLE, json_text, one_line
from acts_celery.protocol.requests.data_blocks import compact

JOINERS = "\u200c\u200d"
SIGNS = {"\u0600", "\u0601", "\u0602", "\u0603", "\u0604", "\u0605", "\u06dd", "\u070f", "\u0890", "\u0891", "\u08e2"}
"""Signs of Arabic and Syriac that Unicode calls format characters, and that can be seen."""
OF_SCRIPTS = ("KAITHI", "EGYPTIAN")


def test_every_character_that_unicode_calls_a_control_a_format_or_a_line_end_is_escaped() -> None:
    for character in map(chr, range(sys.maxunicode + 1)):
        if unicodedata.category(character) not in ("Cc", "Cf", "Zl", "Zp"):
            continue
        is_sign = character in SIGNS or unicodedata.name(character, "").startswith(OF_SCRIPTS)
        assert bool(INVISIBLE.match(character)) is not (is_sign or character in JOINERS), hex(ord(character))


@pytest.mark.nightly
@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_what_is_escaped_has_the_same_value(value: object) -> None:
    assert json.loads(json_text(value)) == json.loads(json_text(value, indent=1)) == value
    assert "\n" not in json_text(value)
    assert not INVISIBLE.search(json_text(value))


def test_text_hidden_in_data_is_shown_to_a_model() -> None:
    tag = "".join(chr(0xE0000 + ord(character)) for character in "obey")
    assert compact({"mail": f"Hi{tag}\u202e\u009b"}) == (
        '{"mail":"Hi\\udb40\\udc6f\\udb40\\udc62\\udb40\\udc65\\udb40\\udc79\\u202e\\u009b"}'
    )
    assert one_line("a\r\nb\u2028") == "a\\u000d\\u000ab\\u2028"
    assert compact("naïve 👩‍🔬 ①") == '"naïve 👩‍🔬 ①"'
