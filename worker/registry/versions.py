"""The version of registered code: given to its decorator, else a digest of its module's source (SPEC R17.1)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from types import CodeType
from typing import Any, Final

from acts_celery.protocol.calls.contract import digest_of
from acts_celery.worker.errors import ActivitiesError

LONGEST_VERSION: Final = 100
"""Characters."""


def require_version(version: Any) -> None:
    """Raise `ActivitiesError` for a version that is given and is none."""
    is_one = isinstance(version, str) and 0 < len(version) <= LONGEST_VERSION and version.isprintable()
    if version is not None and not is_one:
        text = f'version is {version!r}: a text of at most {LONGEST_VERSION} characters, such as version="2"'
        raise ActivitiesError(text)


def version_of(function: Callable[..., Any]) -> str:
    """A digest of the source of the function's module, 12 hexadecimal digits; where it has no file, as in a notebook,
    of what the function was compiled to.
    """
    plain: Any = inspect.unwrap(function)
    while isinstance(plain, partial):
        plain = inspect.unwrap(plain.func)
    if not inspect.isfunction(plain := getattr(plain, "__func__", plain)):
        plain = inspect.unwrap(type(plain).__call__)
    path: Any = getattr(plain, "__globals__", {}).get("__file__")
    try:
        found = Path(path).stat()
        return _of_file(path, found.st_mtime_ns, found.st_size)
    except (OSError, TypeError, ValueError):
        return digest_of(_compiled(getattr(plain, "__code__", None)))


@lru_cache(1_000)
def _of_file(path: str, _changed_ns: int, _size: int) -> str:
    return digest_of(Path(path).read_bytes())


def _compiled(code: Any) -> bytes:
    """What says what compiled code does, the same in each process."""
    if not isinstance(code, CodeType):
        return b""
    constants = b"".join(
        _compiled(one) or repr(one).encode() for one in code.co_consts if not isinstance(one, frozenset)
    )
    return code.co_code + " ".join(code.co_names).encode() + constants
