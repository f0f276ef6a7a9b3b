"""What `acts run` and `acts submit` say of what `acts check` knows: its findings, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import click

from .bundles import bundled
from .failures import Doubted
from .ignored import reported
from .output import tell
from .rendering import counted, finding_line

if TYPE_CHECKING:
    from acts_celery.protocol import Finding, Plan

MOST_TOLD: Final = 20
"""Warnings that are printed; `acts check` prints all."""
WARNING: Final = "warning"


@dataclass(frozen=True, slots=True)
class Checks:
    """What the options say of findings."""

    is_strict: bool
    is_silent: bool
    ignore: tuple[str, ...]

    def tell(self, plan: Plan) -> dict[str, Any]:
        """Print the warnings on stderr; returns `findings` for the command's document, where there are any.

        Raises `Doubted` where there is a warning and none is admitted.
        """
        if self.is_silent:
            return {}
        findings = reported(plan, self.ignore)
        warnings = [finding for finding in findings if finding.severity == WARNING]
        _print(warnings)
        documents = [finding.to_dict() for finding in findings]
        if warnings and self.is_strict:
            raise Doubted(f"{counted(len(warnings), 'warning')}, and --strict: nothing was run", documents)
        return {"findings": documents} if documents else {}


def _checks(*, strict: bool, no_check: bool, ignore: tuple[str, ...]) -> Checks:
    if strict and no_check:
        raise click.UsageError("--strict and --no-check exclude each other")
    return Checks(strict, no_check, ignore)


ignore_option: Final = click.option(
    "--ignore", metavar="CODE", multiple=True, help="Leave out findings with this code or name; repeatable."
)
check_options: Final = bundled(
    "checks",
    _checks,
    click.option("--strict", is_flag=True, help="Run nothing if `acts check` has a warning (exit code 2)."),
    click.option("--no-check", is_flag=True, help="Do not look for findings."),
    ignore_option,
)
"""What is done about findings, as `checks`."""


def _print(warnings: Sequence[Finding]) -> None:
    for finding in islice(warnings, MOST_TOLD):
        tell(click.unstyle(finding_line(finding)))
    if len(warnings) > MOST_TOLD:
        tell(f"{len(warnings) - MOST_TOLD} more: `acts check` prints all")
