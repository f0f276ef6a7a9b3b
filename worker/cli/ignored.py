"""Findings that are not reported: those of `--ignore`, and of `[tool.acts] ignore` in pyproject.toml of the folder."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .failures import REJECTED, Failed

if TYPE_CHECKING:
    from acts_celery.protocol import Finding, Plan

_FILE: Final = "pyproject.toml"


def reported(plan: Plan, options: Iterable[str], more: Iterable[Finding] = ()) -> tuple[Finding, ...]:
    """A plan's findings, and those that were made beside it, but those that are ignored, by code or by name. Raises
    `Failed` where there is no such one.
    """
    from acts_celery.protocol.analysis.analyse import ignored_in, is_ignored

    ignored = {*_known(options, "--ignore"), *_known(_configured(Path(_FILE)), f"[tool.acts] ignore in {_FILE}")}
    ignored |= ignored_in(plan.submission.config)
    return tuple(finding for finding in (*plan.findings, *more) if not is_ignored(finding, ignored))


def _configured(file: Path) -> list[str]:
    """What a project's file lists."""
    try:
        document: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise Failed(f"{file}: {error}", REJECTED) from None
    tools = document.get("tool")
    own = tools.get("acts") if isinstance(tools, dict) else None
    listed = own.get("ignore", []) if isinstance(own, dict) else []
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise Failed(f'[tool.acts] ignore in {file} must be a list of codes, such as ["ACT103"]', REJECTED)
    return listed


def _known(names: Iterable[str], where: str) -> Iterable[str]:
    """The names, all of which are codes or names of findings."""
    from acts_celery.protocol.analysis.catalogue import CATALOGUE

    known = CATALOGUE.keys() | {entry.name for entry in CATALOGUE.values()}
    for name in names:
        if name not in known:
            raise Failed(
                f"{where}: there is no finding {name!r}; docs/reference.md lists them, such as ACT103", REJECTED
            )
        yield name
