"""Operator: what who runs this backend says of tools, beside what they say of themselves (SPEC R16.1).

    {"send_mail": {"effects": true, "content": ["text"]}, "crm.*": {"untrusted": ["crm"]}}

A name is that of a tool, an activity or a delegate; one that ends in `*` stands for all that begin so. It can only add:
a parameter that the code does not call content is none here either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from acts_celery.protocol.language.errors import Problem, UnknownName, pointer

from .trust import ToolTrust, trust_problems

_ALL: Final = "*"
_RESULT: Final = "untrusted"
"""What a tool's own `_trust` calls `result`; decorators say it so, too."""
_KEYS: Final = ("effects", _RESULT, "content")


@dataclass(frozen=True)
class OperatorTrust:
    """What an operator says, by name or by the beginning of names."""

    said: Mapping[str, ToolTrust] = field(default_factory=dict)

    @classmethod
    def read(cls, value: Any) -> OperatorTrust:
        """From a valid document (see `operator_problems`), or from what `to_dict` has given."""
        return cls({name: ToolTrust.read(_as_tools_say_it(said)) for name, said in value.items()})

    def __bool__(self) -> bool:
        return bool(self.said)

    def __or__(self, other: OperatorTrust) -> OperatorTrust:
        """What both say."""
        if not (self and other):
            return self or other
        names = (*self.said, *(name for name in other.said if name not in self.said))
        return OperatorTrust({name: ToolTrust.together(_by(name, self, other)) for name in names})

    def of(self, name: str) -> ToolTrust:
        """What is said of a tool, an activity or a delegate."""
        return ToolTrust.together(said for entry, said in self.said.items() if _stands_for(entry, name))

    def unknown(self, names: Iterable[str]) -> Iterator[str]:
        """The entries that stand for none of these names."""
        there = tuple(names)
        return (entry for entry in self.said if not any(_stands_for(entry, name) for name in there))

    def to_dict(self) -> dict[str, Any]:
        """The inverse of `read`."""
        return {
            name: {_RESULT if k == "result" else k: v for k, v in said.to_dict().items()}
            for name, said in self.said.items()
        }


def operator_problems(value: Any) -> Iterator[Problem]:
    """What keeps a document from being what an operator says of tools."""
    if not isinstance(value, Mapping):
        yield Problem(
            "", 'must be an object, such as {"send_mail": {"effects": true}, "crm.*": {"untrusted": ["crm"]}}'
        )
        return
    for name, said in value.items():
        if _ALL in name[:-1] or not name:
            yield Problem(pointer(name), "must be a name, or the beginning of names with one * at the end")
        elif not isinstance(said, Mapping):
            yield Problem(pointer(name), 'must be an object, such as {"effects": true, "untrusted": ["mail"]}')
        elif (key := next((key for key in said if key not in _KEYS), None)) is not None:
            yield Problem(pointer(name, key), f"unknown key {key!r}", UnknownName(str(key), _KEYS))
        elif said.get("effects") is False:
            text = (
                "has no effect here: this file can only add. Remove it; that a tool of an MCP server only reads is "
                "said where the tool is admitted: acts mcp admit --reads SERVER.TOOL"
            )
            yield Problem(pointer(name, "effects"), text)
        else:
            for problem in trust_problems(_as_tools_say_it(said), name):
                at = problem.pointer.replace(pointer(name, "result"), pointer(name, _RESULT), 1)
                yield Problem(at, problem.message, problem.cause)


def _as_tools_say_it(said: Mapping[str, Any]) -> dict[str, Any]:
    return {"result" if key == _RESULT else key: value for key, value in said.items()}


def _by(name: str, *operators: OperatorTrust) -> Iterator[ToolTrust]:
    return (one.said[name] for one in operators if name in one.said)


def _stands_for(entry: str, name: str) -> bool:
    return name.startswith(entry[:-1]) if entry.endswith(_ALL) else entry == name
