"""Output pins: the spellings under which a tool's schema may admit the output path of a call (SPEC R4.1).

A pin speaks of the whole expression or of each of its places. A path that the schema names is that place however a call
spells it: bare, or in its `†state.` form; a `pattern` speaks of what the call says.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from acts_celery.protocol.language.errors import ExpressionError
from acts_celery.protocol.language.references import Expression, parse_output_path

_PLACE: Final = re.compile(r'(?:[^|&"]|"(?:[^"\\]|\\.)*+")++', re.DOTALL)
"""One place of an output path that can be parsed."""


class NamedPaths:
    """The output paths that a schema names."""

    def __init__(self, values: Iterable[Any]) -> None:
        self._named = {path: value for value in values if (path := _parsed(value)) is not None}

    def named(self, path: Any) -> Any:
        """A path as the schema names it, else as it is."""
        expression = _parsed(path)
        return self._named.get(expression, path) if expression is not None else path

    def places(self, path: Any) -> list[str]:
        """Each of its places, where it has several, as the schema names it, else as it is."""
        expression = _parsed(path)
        if expression is None or len(expression.references) < 2:
            return []
        return [self.named(part.strip()) for part in dict.fromkeys(_PLACE.findall(path))]


def _parsed(path: Any) -> Expression | None:
    try:
        return parse_output_path(path) if isinstance(path, str) else None
    except ExpressionError:
        return None
