"""The version of registered code: given, else a digest of its module's source (SPEC R17.1)."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from acts_celery import ActivitiesError
from acts_celery.worker.registry.activities import Policy, make_activity, version_of

SOURCE = "def add(a: int) -> int:\n    return a + {}\n"


def defined(path: Path, text: str) -> Callable[..., Any]:
    path.write_text(text, encoding="utf-8")
    function: Callable[..., Any] = runpy.run_path(str(path))["add"]
    return function


def test_it_is_a_digest_of_the_source_of_the_module(tmp_path: Path) -> None:
    first = version_of(defined(tmp_path / "a.py", SOURCE.format(1)))
    assert (len(first), int(first, 16) > 0) == (12, True)
    assert version_of(defined(tmp_path / "other.py", SOURCE.format(1))) == first
    assert version_of(defined(tmp_path / "a.py", SOURCE.format(10))) != first


def test_without_a_file_it_is_a_digest_of_what_was_compiled() -> None:
    def of(text: str) -> str:
        names: dict[str, Any] = {}
        exec(text, names)
        return version_of(names["add"])

    assert of(SOURCE.format(1)) == of(SOURCE.format(1)) != of(SOURCE.format(2))


def test_what_wraps_a_function_has_its_version(tmp_path: Path) -> None:
    add = defined(tmp_path / "a.py", SOURCE.format(1))

    class Adding:
        def __call__(self, a: int) -> int:
            return a

    assert version_of(partial(add, 1)) == version_of(add)
    assert version_of(Adding()) == version_of(Adding.__call__) == version_of(test_what_wraps_a_function_has_its_version)


@pytest.mark.parametrize("wrong", ["", 2, "x" * 101, "a\nb"])
def test_a_version_is_a_short_text(wrong: Any) -> None:
    from acts_celery import activity, delegate

    for register in (activity("versioned", version=wrong), delegate("versioned", version=wrong)):
        with pytest.raises(ActivitiesError, match='such as version="2"'):
            register(lambda context: None)


def test_an_activity_has_the_digest_where_none_is_given(tmp_path: Path) -> None:
    add = defined(tmp_path / "a.py", SOURCE.format(1))
    assert make_activity(add, None, None, Policy()).version == version_of(add)
