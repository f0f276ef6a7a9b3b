"""The limits of the settings, as the pure core takes them."""

from __future__ import annotations

from ..broker_config import Settings
from ..protocol import Limits


def limits_of(settings: Settings) -> Limits:
    """The limits that submissions and results are held against."""
    return Limits(
        depth=settings.limit_depth,
        message_bytes=int(settings.limit_message_bytes),
        calls=settings.limit_calls,
        solution_calls=settings.limit_solution_calls,
        submission_bytes=int(settings.limit_submission_bytes),
        call_bytes=int(settings.limit_call_bytes),
        containers=settings.limit_containers,
        elements=settings.limit_elements,
        messages=settings.limit_messages,
        instances=settings.limit_instances,
        schema_work=settings.limit_schema_work,
    )


def most_of(settings: Settings) -> dict[str, float | None]:
    """What an operator allows a loop to spend, by the keys of `config`; null is no limit (SPEC R13.3)."""
    return {
        "ticks": settings.limit_ticks,
        "calls": settings.limit_loop_calls,
        "tokens": settings.limit_tokens,
        "seconds": settings.limit_loop_seconds,
    }
