"""The context: an append-only list of messages, and what its readers see (SPEC R1, R3, R8)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

from ..errors import Conflict, ExpressionError, Problem, Rejected, pointer
from ..limits import CONTROL, LONGEST_INSTANCE, MOST_LABELS, Limits, has_control_characters, plain
from ..messages import (
    CHOSEN,
    DATA_TYPES,
    ERROR,
    EVERYWHERE,
    FIELDS,
    TRUST,
    Message,
    inner_message,
    is_written,
    read_data,
)
from ..paths import copied
from ..references import parse, parse_output_path
from ..schemas import schema_problem
from .fold import Fold
from .labels import UNMARKED, Marks, field_problems, label_problems, marks_of
from .operations import NEEDS_A_PATH, Method, written_place
from .scopes import read_scope, scoped

# Shapes: what is wrong with a message, whatever it means (SPEC R1.1, R7.1, R10.2).
#
# What has no problems here can be read by the other modules without an error.


def message_problems(message: Any, *at: str | int) -> Iterator[Problem]:
    """Yield the problems of the shape of one message (SPEC R1.1)."""
    if not isinstance(message, Mapping):
        yield Problem(pointer(*at), "a message must be an object")
        return
    instance = message.get("_instance")
    if instance is not None and (not isinstance(instance, str) or not instance):
        yield Problem(pointer(*at, "_instance"), "must be a non-empty string")
    elif instance == EVERYWHERE:
        text = f"must not be {EVERYWHERE!r}: as the instance of a call that means every instance"
        yield Problem(pointer(*at, "_instance"), text)
    elif instance is not None and len(instance) > LONGEST_INSTANCE:
        yield Problem(
            pointer(*at, "_instance"), f"has {len(instance)} characters, where {LONGEST_INSTANCE} are allowed"
        )
    elif instance is not None and has_control_characters(instance):
        yield Problem(pointer(*at, "_instance"), CONTROL)
    type_ = message.get("type")
    if type_ == "plan" and instance is not None:
        yield Problem(pointer(*at, "_instance"), "a plan runs once for each instance: leave _instance out")
    if type_ == "plan" and mode_of(message) not in (None, "eager", "lazy"):
        inside = ("plan",) if "mode" in _inside(message) else ()
        yield Problem(pointer(*at, *inside, "mode"), 'must be "eager" or "lazy"')
    if type_ is None and not ("role" in message and "content" in message):
        yield Problem(pointer(*at), 'a message needs a "type", or "role" and "content"')
    elif type_ is None and (inner := inner_message(message)) is not None:
        text = f"a message of type {inner['type']!r} is a message of its own: use it in place of the message around it"
        yield Problem(pointer(*at, "content"), text)
    elif type_ is not None and not isinstance(type_, str):
        yield Problem(pointer(*at, "type"), "must be a string")
    elif type_ in DATA_TYPES:
        yield from _data_problems(message, *at)
    elif message.get(TRUST) is not None:
        yield Problem(pointer(*at, TRUST), f"only data has sources: a type of {', '.join(sorted(DATA_TYPES))}")


def mode_of(plan: Mapping[str, Any]) -> Any:
    """The mode of a plan message, None where it says none (SPEC R13.7)."""
    return _inside(plan).get("mode", plan.get("mode"))


def _inside(plan: Mapping[str, Any]) -> Mapping[str, Any]:
    """The property `plan` of a plan message."""
    inside = plan.get("plan")
    return inside if isinstance(inside, Mapping) else {}


def may_carry_data(message: Any) -> bool:
    """Whether a malformed message was perhaps meant to bring something that can be read (SPEC R1.1): one that does not
    name its type may, unless it looks like a chat.
    """
    if not isinstance(message, Mapping):
        return True
    type_ = message.get("type")
    if type_ is None:
        return not ("role" in message or "content" in message)
    return not isinstance(type_, str) or type_ in DATA_TYPES


def _data_problems(message: Mapping[str, Any], *at: str | int) -> Iterator[Problem]:
    if message["type"] == "data" and not isinstance(message.get("kind", ""), str):
        yield Problem(pointer(*at, "kind"), "must be a string")
    has_schema = "schema" in message and not is_written(message)  # what a call returns chooses no schema
    if has_schema and (problem := schema_problem(message["schema"], *at, "schema")) is not None:
        yield problem
    for key in (TRUST, CHOSEN):
        if message.get(key) is not None:
            yield from label_problems(message[key], *at, key)
    yield from _field_problems(message, *at, FIELDS)
    yield from _operation_problems(message, *at)


def _field_problems(message: Mapping[str, Any], *at: str | int) -> Iterator[Problem]:
    said = message.get(FIELDS)
    if said is None:
        return
    is_list = isinstance(said, list) and len(said) <= MOST_LABELS and all(isinstance(one, Mapping) for one in said)
    if not (is_list and is_written(message)):
        yield Problem(
            pointer(*at), f"is written by the engine, with what a call returned: leave it out, or use {TRUST}"
        )
        return
    for index, one in enumerate(said):
        yield from field_problems(one, *at, index)


def _operation_problems(message: Mapping[str, Any], *at: str | int) -> Iterator[Problem]:
    """Yield the problems of the path and the method of a data message (SPEC R3.1, R4.3)."""
    method = message.get("_outputMethod")
    if method is not None and method not in list(Method):
        yield Problem(pointer(*at, "_outputMethod"), f"must be one of {', '.join(Method)}")
        return
    paths: dict[tuple[str, ...], Any] = {("_path",): message.get("_path")} if is_written(message) or method else {}
    if is_written(message):
        paths["_call", "_outputPath"] = message["_call"].get("_outputPath")
    problems = [problem for place, text in paths.items() for problem in _path_problems(text, *at, *place)]
    yield from problems
    data = read_data(message) if isinstance(message.get("kind", ""), str) and not problems else None
    if method in NEEDS_A_PATH and data is not None and data.kind != ERROR and written_place(message, data) is None:
        yield Problem(
            pointer(*at, "_outputMethod"),
            f"{method} needs a path, and the message has none: only set, merge and assign apply to a whole kind",
        )


def _path_problems(text: Any, *at: str | int) -> Iterator[Problem]:
    if text is None:
        return
    try:
        if not isinstance(text, str):
            raise ExpressionError(str(text), 0, "a string")
        parse_output_path(text)
    except ExpressionError as error:
        yield Problem(pointer(*at), str(error))


class Context(Sequence[Message]):
    """An ordered list of messages, to which more are added. What they come to grows with each, so it costs what is new.

    >>> Context([{"type": "state", "user": {"name": "Alex"}}]).resolve("†state.user.name")
    'Alex'
    """

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._forget()
        for message in messages:
            self.append(message)

    def _forget(self) -> None:
        self._messages: list[Message] = []
        self._global = Fold()
        self._lanes: dict[str, Fold] = {}
        self._declaring: list[tuple[int, Message]] = []
        self._marks = UNMARKED

    @classmethod
    def trusted(cls, messages: Iterable[Message]) -> Context:
        """A context of messages that `message_problems` accepts and that stay unchanged: neither checked nor copied."""
        if isinstance(messages, Context):
            return messages.copy()
        context = cls()
        for message in messages:
            context.take(message)
        return context

    @classmethod
    def of(cls, messages: Iterable[Message]) -> Context:
        """What such messages come to, to be read only: where they are a context already, that itself."""
        return messages if isinstance(messages, Context) else cls.trusted(messages)

    def copy(self) -> Context:
        """A context of the same messages: what is added to one of them is not in the other."""
        copy = Context()
        copy._messages, copy._declaring, copy._marks = [*self._messages], [*self._declaring], self._marks
        copy._global = self._global.copy()
        copy._lanes = {instance: fold.copy(copy._global) for instance, fold in self._lanes.items()}
        return copy

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._messages)

    @overload
    def __getitem__(self, at: int) -> Message: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Message]: ...

    def __getitem__(self, at: int | slice) -> Message | Sequence[Message]:
        return self._messages[at]

    @property
    def messages(self) -> tuple[Message, ...]:
        """Every message, untouched, in order."""
        return tuple(self._messages)

    @property
    def instances(self) -> tuple[str, ...]:
        """The instances that occur, in the order they came."""
        return tuple(self._lanes)

    @property
    def declaring(self) -> Sequence[tuple[int, Message]]:
        """The messages that have a schema, each with its position."""
        return self._declaring

    @property
    def marks(self) -> Marks:
        """The marks of all messages together."""
        return self._marks

    def append(self, message: Message) -> None:
        """Add a message at the end. Raises `Rejected` where it is malformed."""
        message = plain(message, Limits())
        problems = list(message_problems(message))
        if problems:
            raise Rejected(problems)
        self.take(copied(message))

    def take(self, message: Message) -> None:
        """Add a message at the end that `message_problems` accepts and that stays unchanged."""
        at = len(self._messages)
        self._messages.append(message)
        instance = message.get("_instance")
        if instance is None:
            self._global.append(message, _source(at))
        else:
            self._lane(instance).append(message, _source(at))
        if "schema" in message:
            self._declaring.append((at, message))
        if TRUST in message or CHOSEN in message:
            self._marks |= marks_of(message)

    def replace(self, message: Message, positions: Collection[int]) -> None:
        """Put a message in the place of those at some positions. It costs as much as reading all of them."""
        before, left = self._messages, frozenset(positions)
        self._forget()
        for at, each in enumerate(before):
            self.take(message if at in left else each)

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
