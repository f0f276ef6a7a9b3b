"""Who may open the pages of `acts ui`, as it is written in the settings."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from acts_celery.broker_config import SettingsError, load
from acts_celery.broker_config.tokens import Identity, TokenLimits

ANN, BOB = "a" * 16, "b" * 43


def test_a_token_has_a_name_and_rights_and_always_that_to_read() -> None:
    ann, bob = load(ui_tokens=f"ann:decide+control:{ANN}, bob:read:{BOB}").read_ui_tokens()
    assert (ann.name, sorted(ann.rights), ann.text) == ("ann", ["control", "decide", "read"], ANN)
    assert (bob.name, sorted(bob.rights), bob.text) == ("bob", ["read"], BOB)
    assert ANN not in repr(ann)


def test_without_tokens_there_are_none() -> None:
    assert load().read_ui_tokens() == ()


def test_tokens_may_stand_in_a_file_one_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"ann:control:{ANN}\n\nbob:read:{BOB}\n")
    settings = load(ui_tokens=f"@{tmp_path / 'tokens'}")
    assert [token.name for token in settings.read_ui_tokens()] == ["ann", "bob"]


@pytest.mark.parametrize("text", [None, "", "\n", f"ann:all:{ANN}"])
def test_a_file_that_holds_no_tokens_is_refused_when_it_is_read(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "tokens").write_text(text)
    settings = load(ui_tokens=f"@{tmp_path / 'tokens'}")
    with pytest.raises(SettingsError, match="ACTS_UI_TOKENS: ") as refused:
        settings.read_ui_tokens()
    assert ANN not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ANN, "token 1: should be NAME:RIGHTS:TOKEN"),
        (",", "names no token"),
        (f"ann:read:{ANN},bob:{BOB}", "token 2: should be"),
        (f"ann:read:{ANN}:{BOB}", "token 1 (ann): behind a token, which has no colon, only its limits"),
        (f"ann:read:{ANN}:runs=1:{BOB}", "token 1: should be"),
        (f"ann:read:{ANN}:runs=1+runs=2", "token 1 (ann): behind a token"),
        (f"ann:read:{ANN}:runs=-1", "token 1 (ann): behind a token"),
        (f"ann:read:{ANN}:money=1e9", "token 1 (ann): behind a token"),
        (f"ann:read:{ANN}:runs=1,ann:read:{BOB}:runs=2", "the tokens of ann have other limits"),
        (f":read:{ANN}", "token 1: its name"),
        (f"a\x1bn:read:{ANN}", "token 1: its name"),
        (f"ann::{ANN}", "token 1 (ann): '' is no right: read, decide, control"),
        (f"ann:write:{ANN}", "token 1 (ann): 'write' is no right"),
        ("ann:read:short", "token 1 (ann): should have 16 or more"),
        (f"ann:read:{ANN} {BOB}", "token 1 (ann): should have 16 or more"),
        (f"ann:read:{'ä' * 20}", "token 1 (ann): should have 16 or more"),
        (f"ann:read:{ANN},bob:read:{ANN}", "two of the tokens are the same"),
    ],
)
def test_what_is_no_token_is_refused_and_never_shown(text: str, said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(ui_tokens=text)
    assert f"ACTS_UI_TOKENS: {said}" in str(refused.value)
    assert ANN not in str(refused.value)
    assert BOB not in str(refused.value)


def test_limits_may_stand_behind_a_token() -> None:
    ann, bob = load(ui_tokens=f"ann:read:{ANN}:runs=5+money=2.50,bob:own:{BOB}").read_ui_tokens()
    assert ann.limits == TokenLimits(runs=5, money=Decimal("2.50"))
    assert ann.identity == Identity("ann", ann.limits)
    assert (bob.limits, sorted(bob.rights)) == (TokenLimits(), ["own", "read"])


def test_no_variable_argument_or_file_says_who_has_shown_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IDENTITY", "_IDENTITY"):
        monkeypatch.setenv(f"ACTS_{name}", '{"name": "ann"}')
    assert load().identity is None
    acting = load().acting_for("ann", Identity("ann"))
    assert (acting.identity, acting.actor) == (Identity("ann"), "ann")
    assert "identity" not in str(sorted(acting.to_environment())).lower()


@pytest.mark.parametrize(
    "url", ["acts.example", "ftp://acts.example", "https://", "https://a.example/acts", "https://u:p@a.example", "x"]
)
def test_the_pages_are_at_the_root_of_a_host(url: str) -> None:
    with pytest.raises(SettingsError, match="ACTS_UI_URL"):
        load(ui_url=url)
    assert load(ui_url="https://acts.example:8443/").ui_url == "https://acts.example:8443"


def test_runs_are_read_from_a_redis_of_the_same_forms_as_the_log() -> None:
    with pytest.raises(SettingsError, match="ACTS_UI_REDIS_URL"):
        load(ui_redis_url="http://replica:6379")
    settings = load(ui_redis_url="redis://:secret@replica:6379/0")
    assert settings.masked()["ui_redis_url"] == "redis://:***@replica:6379/0"


def test_a_file_that_only_lies_here_lets_nobody_in(clean_environment: Path) -> None:
    (clean_environment / ".env").write_text(f"ACTS_UI_TOKENS=ann:control:{ANN}\nACTS_UI_VIEWERS=7\n")
    settings = load()
    assert (settings.read_ui_tokens(), settings.ui_viewers) == ((), 7)
    assert [token.name for token in load(env_file=".env").read_ui_tokens()] == ["ann"]


def test_tokens_are_masked_and_passed_on_whole_to_a_child_process() -> None:
    settings = load(ui_tokens=f"ann:read:{ANN}")
    assert ANN not in str(settings.masked())
    assert settings.to_environment()["ACTS_UI_TOKENS"] == f"ann:read:{ANN}"
