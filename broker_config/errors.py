"""The errors that can occur before a task is sent: one small tree, remedies included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class BrokerConfigError(Exception):
    """The root of everything this package raises on purpose."""

    code: ClassVar[str] = "broker_config_error"
    """Names the kind of error for programs; it does not change between versions."""


class SettingsError(BrokerConfigError):
    """One or more settings hold values that cannot be used; each problem is one line naming its variable."""

    code = "settings_error"

    def __init__(self, problems: Sequence[str]) -> None:
        """Keep `problems`, e.g. ``("ACTS_LIMIT_DEPTH: Input should be greater than 0 (it is '0')",)``."""
        self.problems: tuple[str, ...] = tuple(problems)
        super().__init__("\n".join(self.problems))


class NotConfigured(BrokerConfigError):
    """Something was asked for that no setting provides; the text says which setting to give."""

    code = "not_configured"


class ServerUnavailable(BrokerConfigError):
    """No Redis-compatible server binary was found, or it did not start; the text says what to do."""

    code = "server_unavailable"
