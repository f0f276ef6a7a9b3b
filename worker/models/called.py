"""Functions that a model calls, as they come from a provider: in one piece, or each in many (SPEC R12.6, R13.8)."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable
from typing import Any, Final

from acts_celery.protocol.requests.function_answers import FunctionAnswer
from acts_celery.protocol.requests.functions import OUTPUT, Function

_TEXT_BEGINS: Final = re.compile(r'\s*\{\s*"output"\s*:\s*(?=")')
"""What stands before an output that is a text, in the arguments of its function."""
_LONGEST_BEFORE: Final = 100


class Called:
    """Writes the answer that the calls are. `begin` and `end` return what adds to its text."""

    def __init__(self, functions: Iterable[Function], *, may_say: bool = False) -> None:
        self._answer = FunctionAnswer(list(functions))
        self._may_say = may_say
        """Whether words are the output if no call follows."""
        self._open: tuple[Hashable, str, list[str]] | None = None
        """The call that is being written: what the provider tells it by, its name and its arguments."""
        self._before: str | None = None
        """What has come of an output of which is not known yet whether it is a text; else None."""
        self._tells = False
        """Whether the call that is being written is an output that is a text."""
        self._words: list[str] = []

    @property
    def words(self) -> str:
        """What was said beside the calls."""
        return "".join(self._words)

    def say(self, piece: str) -> str:
        """Take in words. Returns what can be told of them as an output, which is no part of the answer's text."""
        begins = not self._words
        self._words.append(piece)
        if not self._may_say:
            return ""
        text = json.dumps(piece)[1:-1]
        return f'{self._answer.before_output}"{text}' if begins else text

    def begin(self, key: Hashable, name: Any) -> str:
        """A call begins, so the one before it is whole."""
        self._may_say = False
        text = self.end()
        self._open = key, name if isinstance(name, str) else "", []
        self._before, self._tells = "" if name == OUTPUT else None, False
        return text

    def is_open(self, key: Hashable) -> bool:
        """Whether that call is being written."""
        return self._open is not None and self._open[0] == key

    def add(self, key: Hashable, piece: str) -> str:
        """Take in more of the arguments of a call. Returns what can be told of an output that is a text, while it is
        written: how the answer goes on if no call follows. It is no part of the answer's text.
        """
        if self._open is None or self._open[0] != key:
            return ""
        self._open[2].append(piece)
        if self._before is None:
            return piece if self._tells else ""
        before = self._before + piece
        if (begins := _TEXT_BEGINS.match(before)) is None:
            self._before = before if len(before) < _LONGEST_BEFORE else None
            return ""
        self._before, self._tells = None, True
        return self._answer.before_output + before[begins.end() :]

    def end(self) -> str:
        """The call that is being written is whole."""
        if self._open is None:
            return ""
        (_, name, pieces), self._open = self._open, None
        return self._answer.call(name, "".join(pieces))

    def close(self) -> str:
        """The answer is whole."""
        return self.end() + self._answer.end()
