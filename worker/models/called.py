"""Functions that a model calls, as they come from a provider: in one piece, or each in many (SPEC R12.6, R13.8)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from acts_celery.protocol.requests.answer_texts import Unreadable
from acts_celery.protocol.requests.function_answers import FunctionAnswer
from acts_celery.protocol.requests.functions import Function

from .errors import InvalidAnswer


class Called:
    """Writes the answer that the calls are. What adds to its text returns that, and raises `InvalidAnswer`."""

    def __init__(self, functions: Iterable[Function]) -> None:
        self._answer = FunctionAnswer(list(functions))
        self._open: dict[Hashable, tuple[str, list[str]]] = {}
        """Names and arguments of the calls that are being written, by what the provider tells them apart by."""
        self._words: list[str] = []

    @property
    def words(self) -> str:
        """What was said beside the calls."""
        return _joined(self._words)

    def say(self, piece: str) -> None:
        """Take in words."""
        self._words.append(piece)

    def whole(self, name: Any, arguments: Any) -> str:
        """A call that has come in one piece."""
        if not isinstance(name, str) or not isinstance(arguments, str | Mapping):
            raise InvalidAnswer("the model's server has sent a call of a function that has no name, or no arguments")
        try:
            return self._answer.call(name, arguments)
        except Unreadable as error:
            raise InvalidAnswer(str(error)) from None

    def begin(self, key: Hashable, name: Any) -> str:
        """A call begins, so those before it are whole."""
        text = self.end()
        self._open[key] = (name if isinstance(name, str) else "", [])
        return text

    def is_open(self, key: Hashable) -> bool:
        """Whether that call is being written."""
        return key in self._open

    def add(self, key: Hashable, piece: str) -> None:
        """More of the arguments of a call."""
        if key in self._open:
            self._open[key][1].append(piece)

    def end(self) -> str:
        """The calls that are being written are whole."""
        made = [self.whole(name, _joined(pieces)) for name, pieces in self._open.values()]
        self._open.clear()
        return "".join(made)

    def close(self) -> str:
        """The answer is whole."""
        return self.end() + self._answer.end()


def _joined(pieces: Iterable[str]) -> str:
    """Pieces as one text; halves of a character (UTF-16) that have come in two of them are one."""
    return "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
