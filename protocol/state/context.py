"""The context: an append-only list of messages, and what its readers see (SPEC R1, R3, R8)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from acts_celery.protocol.language.errors import Conflict, Rejected
from acts_celery.protocol.language.limits import Limits, plain
from acts_celery.protocol.language.messages import Message
from acts_celery.protocol.language.paths import copied
from acts_celery.protocol.language.references import parse

from .fold import Fold
from .scopes import read_scope, scoped
from .shapes import message_problems


class Context:
    """An ordered list of messages; nothing is ever edited or removed.

    >>> Context([{"type": "state", "user": {"name": "Alex"}}]).resolve("†state.user.name")
    'Alex'
    """

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._messages: list[Message] = []
        self._global = Fold()
        self._lanes: dict[str, Fold] = {}
        for message in messages:
            self.append(message)

    @classmethod
    def trusted(cls, messages: Iterable[Message]) -> Context:
        """A context of messages that `message_problems` accepts and that stay unchanged: neither checked nor copied."""
        context = cls()
        for message in messages:
            context._take(message)
        return context

    @property
    def messages(self) -> tuple[Message, ...]:
        """Every message, untouched, in order."""
        return tuple(self._messages)

    @property
    def instances(self) -> tuple[str, ...]:
        """The instances that occur, in the order they came."""
        return tuple(self._lanes)

    def append(self, message: Message) -> None:
        """Add a message at the end. Raises `Rejected` where it is malformed."""
        message = plain(message, Limits())
        problems = list(message_problems(message))
        if problems:
            raise Rejected(problems)
        self._take(copied(message))

    def _take(self, message: Message) -> None:
        source = _source(len(self._messages))
        self._messages.append(message)
        instance = message.get("_instance")
        if instance is None:
            self._global.append(message, source)
        else:
            self._lane(instance).append(message, source)

    def fold(self, instance: str | None = None) -> Fold:
        """The folded values as a reader sees them. An instance that does not occur sees the global ones."""
        return self._global if instance is None else self._lanes.get(instance, self._global)

    def resolve(self, expression: str, *, instance: str | None = None) -> Any:
        """The value of a reference or expression (SPEC R2.3, R3).

        Raises `Unresolved`, `Conflict`, `ExpressionError`.
        """
        return self.fold(instance).read(parse(expression))

    def scoped(self, scopes: Iterable[str], *, instance: str | None = None) -> dict[str, Any]:
        """Kind to folded value for the scopes, and nothing else (SPEC R8)."""
        return scoped(self.fold(instance), [read_scope(scope) for scope in scopes])

    def data(self, instance: str | None = None) -> dict[str, Any]:
        """Kind to folded value, for every kind a reader sees."""
        return self.fold(instance).snapshot()

    def conflicts(self) -> dict[int, Conflict]:
        """The messages, by position, that do not fit what is there for some reader (SPEC R3.4)."""
        found = {conflict.source: conflict for fold in self._folds() for conflict in fold.conflicts()}
        return {index: found[_source(index)] for index in range(len(self._messages)) if _source(index) in found}

    def _folds(self) -> Iterator[Fold]:
        yield self._global
        yield from self._lanes.values()

    def _lane(self, instance: str) -> Fold:
        if instance not in self._lanes:
            self._lanes[instance] = Fold(self._global)
        return self._lanes[instance]


def _source(index: int) -> str:
    """How a message is called in errors."""
    return f"message {index}"
