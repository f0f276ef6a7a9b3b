"""The settings of `acts ui`: who may look at runs and decide in them, and where their pages are."""

from __future__ import annotations

from typing import Final, Self

from pydantic import Field, SecretStr, field_validator

from acts_celery.broker_config.addresses import FOUND, SECRET
from acts_celery.broker_config.tokens import AccessToken, ActingSettings, Right, check_tokens, read_tokens
from acts_celery.broker_config.urls import REDIS_SCHEMES, SecretUrl, check_site, check_url, redis_url_of

__all__ = ["UI_RIGHTS", "UiSettings"]

LOCAL_RIGHTS: Final[tuple[Right, ...]] = ("read", "decide", "control")
"""What whoever starts the pages may have; the first is to look."""
UI_RIGHTS: Final[tuple[Right, ...]] = (*LOCAL_RIGHTS, "own")
"""What a token of the pages admits; whoever enters sees all runs, with `own` those of its name."""


class UiSettings(ActingSettings):
    """The settings of `acts ui`."""

    ui_tokens: SecretStr | None = Field(
        None,
        description="Who may open the pages of `acts ui`: NAME:RIGHTS:TOKEN, separated by commas or lines. RIGHTS are "
        "`read`, `decide`, `control` and `own`, with + between them; whoever enters may read, with `own` only the runs "
        "of that name. The audit trail has the name. Limits may follow, see ACTS_MCP_TOKENS. @FILE reads them from a "
        "file. Unset: `acts ui` makes a token for its own machine.",
        json_schema_extra=SECRET,
    )
    ui_redis_url: SecretUrl | None = Field(
        None,
        description="The Redis that `acts ui` reads runs from, such as a replica of the log; what it writes goes to "
        "the log. Unset: the log.",
        json_schema_extra=SECRET,
    )
    ui_url: str | None = Field(
        None,
        description="Where the pages of `acts ui` are, as a browser sees them (http or https): behind a proxy, and "
        "for links to them. Unset: where it listens.",
    )
    ui_viewers: int = Field(
        100, gt=0, description="How many pages of `acts ui` may follow runs at a time.", json_schema_extra=FOUND
    )

    @field_validator("ui_tokens")
    @classmethod
    def _check_ui_tokens(cls, value: SecretStr | None) -> SecretStr | None:
        return check_tokens(value, UI_RIGHTS)

    @field_validator("ui_redis_url")
    @classmethod
    def _check_ui_redis_url(cls, value: SecretUrl | None) -> SecretUrl | None:
        if value is None:
            return None
        url = value.get_secret_value()
        return SecretUrl(check_url(redis_url_of(url) or url, schemes=REDIS_SCHEMES))

    @field_validator("ui_url")
    @classmethod
    def _check_ui_url(cls, value: str | None) -> str | None:
        return check_site(value)

    @property
    def for_reading(self) -> Self:
        """The settings with which `acts ui` reads runs."""
        return self if self.ui_redis_url is None else self.model_copy(update={"redis_url": self.ui_redis_url})

    def read_ui_tokens(self) -> tuple[AccessToken, ...]:
        """The tokens, read from their file where one is named. Raises `SettingsError`."""
        return read_tokens(self.ui_tokens, "UI_TOKENS", UI_RIGHTS)
