"""Approvals: which calls a person decides on before they run (SPEC R14.1).

`config.approve` lists tool names, references - calls whose parameters or scopes read there - and `*`. A name holds for
the tool and for the code that runs a call, so no other tool leads around it (SPEC R4.2).

A call that `ask_human` runs is a question to a person: it is always held, and the answer is its result.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from acts_celery.protocol.language.errors import Problem, UnknownName, pointer
from acts_celery.protocol.language.references import Reference, is_expression, parse

from .call import Call
from .toolbox import listed
from .tools import Executor

EVERYTHING: Final = "*"
ASK_HUMAN: Final = "ask_human"
"""The code of questions; no activity can be registered under it."""
QUESTION: Final[Mapping[str, Any]] = {
    "type": "object",
    "description": "Asks a person a question. The run waits for the answer, which is the result: one of `options`, "
    "where there are any.",
    "properties": {"question": {"type": "string"}, "options": {"type": "array"}},
    "required": ["question"],
}
"""What a call of it takes, unless a tool with `"_activity": {"const": "ask_human"}` says more."""


@dataclass(frozen=True, slots=True)
class Approvals:
    """What a person decides on."""

    names: frozenset[str] = frozenset()
    places: tuple[Reference, ...] = ()

    def hold(self, call: Call) -> bool:
        """Whether a call is held when it is ready; a passing thought never is, since it is not executed (SPEC R5.2)."""
        if asks(call):
            return True
        if call.is_note or not (self.names or self.places):
            return False
        if EVERYTHING in self.names or call.tool in self.names or call.runner.name in self.names:
            return True
        return any(own.overlaps(place) for place in self.places for own in _reads(call))


NONE: Final = Approvals()
"""Nothing is held but questions."""


def asks(call: Call) -> bool:
    """Whether a call is a question to a person."""
    return call.runner.executor is Executor.ACTIVITY and call.runner.name == ASK_HUMAN


def read_approvals(config: Mapping[str, Any]) -> Approvals:
    """What a valid `config` says."""
    entries = config.get("approve") or ()
    return Approvals(
        names=frozenset(entry for entry in entries if not is_expression(entry)),
        places=tuple(parse(entry).references[0] for entry in entries if is_expression(entry)),
    )


def approval_problems(entries: Any, known: Container[str], remedy: Callable[[str], str], *at: str) -> Iterator[Problem]:
    """The names that no tool and no code has: such an entry would hold nothing."""
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        if isinstance(entry, str) and entry not in ("", EVERYTHING) and not is_expression(entry) and entry not in known:
            cause = UnknownName(entry, tuple(listed(known)))
            text = remedy(entry) or ": no call would be held for it"
            yield Problem(pointer(*at, index), f"unknown tool {entry!r}{text}", cause)


def _reads(call: Call) -> Iterable[Reference]:
    """The places that a call's parameters and scopes read."""
    yield from call.scopes
    for expression in call.expressions:
        yield from expression.references
