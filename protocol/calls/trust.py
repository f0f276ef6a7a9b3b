"""Trust: what a tool declares besides its parameters (SPEC R16.1).

    "_trust": {"effects": true, "result": ["mail"], "content": ["note"]}

    "_trust": {"result": {"reviews.*.text": ["reviews"], "*": []}}

    "_trust": {"effects": true, "proof": ["code"], "hosts": {"url": ["shop.example"]}}

Several may speak of one call: the tool that it names, the code that runs it, the operator. Each can only add: what any
of them says is untrusted is, and what any of them says decides does. A field has the labels that any of them gives it,
be it by a path or with the whole result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from .. import limits
from ..errors import ExpressionError, Problem, UnknownName, pointer
from ..messages import Message, is_written
from ..paths import strings
from ..references import DAGGER, parse
from ..state.labels import TRUSTED, FieldLabels, Fields, Labels, field_problems, label_problems, with_fields

Hosts = frozenset[tuple[str, frozenset[str]]]
"""Parameters that are addresses, each with the hosts that are named for it."""
ENDORSES: Final = "_endorses"
"""In an operator's request definition: with true its answer, of a few values, is trusted (SPEC R16.3); with a place,
such as `†state.found.*.id`, an answer that is one of the values there to which nobody else wrote (SPEC R16.8).
"""
_KEYS: Final = ("effects", "result", "content", "proof", "hosts")
_ALSO: Final = ("endorses", "once")
"""Keys that are declared elsewhere, or not at all."""


@dataclass(frozen=True, slots=True)
class ToolTrust:
    """The trust declared for a tool; false if none is declared."""

    effects: bool = False
    """Whether calling it changes something outside."""
    result: Labels = TRUSTED
    """Sources of its results, of all fields together, besides those of what it was given."""
    fields: Fields = field(default=frozenset(), kw_only=True)
    """Sources of its results by field, where they differ; with a declaration for the whole result among them."""
    content: frozenset[str] = frozenset()
    """The parameters, and scopes, that decide nothing; all others do."""
    proof: frozenset[str] = field(default=frozenset(), kw_only=True)
    """Parameters that may come from anybody, since they only complete a call that is trusted itself (SPEC R16.8)."""
    hosts: Hosts = field(default=frozenset(), kw_only=True)
    """Parameters that are addresses, with the hosts at which a call has no effects (SPEC R16.8)."""
    endorses: bool | str = False
    """Whether an operator's delegate gives trusted answers whatever it has read (SPEC R16.3), or among which values."""
    once: bool = False
    """Whether a call runs at most once, or a person is asked (SPEC R4.11): `_once` beside `_trust`."""

    @classmethod
    def read(cls, said: Any) -> ToolTrust:
        """Read a valid `_trust`, or what `to_dict` gives."""
        if not said:
            return NOTHING
        result, fields = _read_result(said.get("result") or ())
        content, proof = (frozenset(said.get(key) or ()) for key in ("content", "proof"))
        hosts = frozenset((name, frozenset(listed)) for name, listed in (said.get("hosts") or {}).items())
        also = (endorsement_of(said.get("endorses")), said.get("once") is True)
        return cls(said.get("effects") is True, result, content, *also, fields=fields, proof=proof, hosts=hosts)

    @classmethod
    def together(cls, said: Iterable[ToolTrust]) -> ToolTrust:
        """Trust of one call from several declarations: a parameter decides nothing, and a host is named, only if each
        declaration with effects says so.
        """
        found = [one for one in said if one]
        acting = [one for one in found if one.effects]
        free = frozenset[str].intersection(*(one.free for one in acting)) if acting else frozenset[str]()
        proof = free.intersection(frozenset[str]().union(*(one.proof for one in acting)))
        result = frozenset().union(*(one.result for one in found))
        endorsing = {one.endorses for one in found if one.endorses}
        also = (endorsing.pop() if len(endorsing) == 1 else False, any(one.once for one in found))
        differing = any(one.fields for one in found)
        fields = Fields().union(*(with_fields(one.result, one.fields) for one in found)) if differing else Fields()
        hosts = _hosts_of_all([one.hosts for one in acting])
        return (
            cls(bool(acting), result, free - proof, *also, fields=fields, proof=proof, hosts=hosts)
            if found
            else NOTHING
        )

    @property
    def free(self) -> frozenset[str]:
        """Parameters, and scopes, that may come from anybody."""
        return self.content | self.proof

    def __bool__(self) -> bool:
        return bool(self.effects or self.result or self.endorses or self.once)

    def to_dict(self) -> dict[str, Any]:
        """The declaration as a tool's `_trust`, with what is declared beside it."""
        return {
            **({"effects": True} if self.effects else {}),
            **({"result": self._result()} if self.result else {}),
            **({"content": sorted(self.content)} if self.content else {}),
            **({"proof": sorted(self.proof)} if self.proof else {}),
            **({"hosts": {name: sorted(listed) for name, listed in sorted(self.hosts)}} if self.hosts else {}),
            **{key: getattr(self, key) for key in _ALSO if getattr(self, key)},
        }

    def _result(self) -> list[str] | dict[str, list[str]] | list[dict[str, list[str]]]:
        said = sorted((one.to_dict() for one in self.fields), key=repr)
        return said[0] if len(said) == 1 else said or sorted(self.result)


def _hosts_of_all(said: Sequence[Hosts]) -> Hosts:
    """The hosts at which no declaration with effects sees any."""
    if not all(said):
        return frozenset()
    together: dict[str, frozenset[str]] = {}
    for name, listed in (pair for hosts in said for pair in hosts):
        together[name] = together[name] & listed if name in together else listed
    return frozenset(together.items())


def _read_result(said: Any) -> tuple[Labels, Fields]:
    """Read the sources of results: names, names by field, or several declarations by field."""
    declared = [said] if isinstance(said, Mapping) else [one for one in said if isinstance(one, Mapping)]
    if not declared:
        return frozenset(said), frozenset()
    fields = frozenset(map(FieldLabels.read, declared))
    return TRUSTED.union(*(one.all for one in fields)), fields


NOTHING: Final = ToolTrust()


def tool_trust_of(said: Mapping[str, ToolTrust], *names: str) -> ToolTrust:
    """Trust of a call by the names of its tool and, last, of its code; only the code may endorse."""
    if not said:
        return NOTHING
    together = ToolTrust.together(said[name] for name in dict.fromkeys(names) if name in said)
    may_endorse = said.get(names[-1], NOTHING).endorses
    return together if may_endorse or not together.endorses else replace(together, endorses=False)


def endorsement_problems(definition: Mapping[str, Any], *at: str | int) -> Iterator[Problem]:
    """Problems of the `_endorses` of a request definition: a trusted answer is one of few."""
    said, schema = definition.get(ENDORSES, False), definition.get("schema")
    if isinstance(said, str):
        try:
            is_place = len(parse(said).references) == 1 and said.startswith(DAGGER)
        except ExpressionError as error:
            yield Problem(pointer(*at, ENDORSES), str(error))
            return
        if not is_place:
            yield Problem(pointer(*at, ENDORSES), "must be one place of values, such as †state.found.*.id")
    elif not isinstance(said, bool):
        yield Problem(pointer(*at, ENDORSES), "must be true, false, or a place of values, such as †state.found.*.id")
    elif said and not _has_few_values(schema):
        text = f"an answer that endorses is a boolean, or one of at most {limits.FEW_VALUES} values: give it an enum"
        yield Problem(pointer(*at, "schema"), text)


def endorsement_of(said: Any) -> bool | str:
    """The endorsement that a valid definition declares."""
    return said if said is True or isinstance(said, str) else False


def _has_few_values(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return False
    values = schema.get("enum")
    return schema.get("type") == "boolean" or (isinstance(values, list) and len(values) <= limits.FEW_VALUES)


def trust_problems(said: Any, *at: str | int) -> Iterator[Problem]:
    """Problems of the `_trust` of a tool."""
    if not isinstance(said, Mapping):
        yield Problem(pointer(*at), 'must be an object, such as {"effects": true, "result": ["mail"]}')
        return
    for key, value in said.items():
        if key not in _KEYS:
            yield Problem(pointer(*at, key), f"unknown key {key!r}", UnknownName(str(key), _KEYS))
        elif key == "effects" and not isinstance(value, bool):
            yield Problem(pointer(*at, key), "must be true or false")
        elif key == "result":
            problems = field_problems if isinstance(value, Mapping) else label_problems
            yield from problems(value, *at, key)
            if isinstance(value, Mapping) and "" in value:
                yield Problem(pointer(*at, key, ""), "names no field: write * for all that no other path names")
        elif key == "hosts":
            yield from host_problems(value, *at, key)
        elif key in ("content", "proof") and not _are_names(value):
            yield Problem(pointer(*at, key), "must be a list of names of parameters")
    for key in ("content", "proof", "hosts"):
        if said.get(key) and said.get("effects") is not True:
            yield Problem(pointer(*at, key), 'says what of a call with effects decides nothing: add "effects": true')


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) and one for one in value)


# Operator: what the operator declares for tools, besides what they declare themselves (SPEC R16.1).
#
#     {"send_mail": {"effects": true, "content": ["text"]}, "crm.*": {"untrusted": ["crm"]}}
#
# A name is a tool's, an activity's or a delegate's; one that ends in `*` means all that begin so. It can only
# add: a parameter that the code does not call content cannot be made content here.

_ALL: Final = "*"
_RESULT: Final = "untrusted"
"""The name in the operator's file, and of decorators, for what a tool's own `_trust` calls `result`."""
_OPERATOR_KEYS: Final = ("effects", _RESULT, "content", "proof", "hosts", "once")
SUGGESTED: Final = "suggested"
"""The reasons of an entry that a command has written and nobody has accepted."""


@dataclass(frozen=True)
class OperatorTrust:
    """Trust declared by the operator, by name or by the beginning of names."""

    said: Mapping[str, ToolTrust] = field(default_factory=dict)

    @classmethod
    def read(cls, value: Any) -> OperatorTrust:
        """Read a valid document (see `operator_problems`), or what `to_dict` gives."""
        return cls({name: ToolTrust.read(_as_tools_say_it(said)) for name, said in value.items()})

    def __bool__(self) -> bool:
        return bool(self.said)

    def __or__(self, other: OperatorTrust) -> OperatorTrust:
        """Combine the declarations of two operators."""
        if not (self and other):
            return self or other
        names = (*self.said, *(name for name in other.said if name not in self.said))
        return OperatorTrust({name: ToolTrust.together(_by(name, self, other)) for name in names})

    def of(self, name: str) -> ToolTrust:
        """Trust that the operator declares for a tool, an activity or a delegate."""
        return ToolTrust.together(said for entry, said in self.said.items() if _matches(entry, name))

    def unknown(self, names: Iterable[str]) -> Iterator[str]:
        """Entries that match none of these names."""
        there = tuple(names)
        return (entry for entry in self.said if not any(_matches(entry, name) for name in there))

    def to_dict(self) -> dict[str, Any]:
        """The declarations as a document, which `read` reads."""
        return {
            name: {_RESULT if k == "result" else k: v for k, v in said.to_dict().items()}
            for name, said in self.said.items()
        }


def operator_problems(value: Any) -> Iterator[Problem]:
    """Problems of an operator's document on trust."""
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
        elif SUGGESTED in said:
            text = "nobody has accepted the entry: read the reasons, correct it and remove this key, or remove it"
            yield Problem(pointer(name, SUGGESTED), text)
        elif (key := next((key for key in said if key not in _OPERATOR_KEYS), None)) is not None:
            yield Problem(pointer(name, key), f"unknown key {key!r}", UnknownName(str(key), _OPERATOR_KEYS))
        elif not isinstance(said.get("once", True), bool):
            yield Problem(pointer(name, "once"), "must be true or false")
        elif said.get("effects") is False:
            text = "has no effect here: remove it. That an MCP tool only reads: acts mcp admit --reads SERVER.TOOL"
            yield Problem(pointer(name, "effects"), text)
        else:
            for problem in trust_problems(_without_once(_as_tools_say_it(said)), name):
                at = problem.pointer.replace(pointer(name, "result"), pointer(name, _RESULT), 1)
                yield Problem(at, problem.message, problem.cause)


def _as_tools_say_it(said: Mapping[str, Any]) -> dict[str, Any]:
    return {"result" if key == _RESULT else key: value for key, value in said.items()}


def _without_once(said: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in said.items() if key != "once"}


def _by(name: str, *operators: OperatorTrust) -> Iterator[ToolTrust]:
    return (one.said[name] for one in operators if name in one.said)


def _matches(entry: str, name: str) -> bool:
    return name.startswith(entry[:-1]) if entry.endswith(_ALL) else entry == name


# Hosts: which server an address leads to (SPEC R16.8).
#
# An address is read strictly: one that two programs might read differently leads to no host here. So there are no users
# (`user@host`), backslashes, percent-escapes or other letters than those of ASCII in it, no numbers in place of names,
# no trailing dot, no scheme but `http` and `https`, and a host is followed by its port, `/` or nothing. A port that is
# not the scheme's own is part of the host: `shop.example:8443`.

_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_ADDRESS: Final = re.compile(
    rf"(?:(?P<scheme>https?)://)?(?P<host>(?:{_LABEL}\.)*(?:[a-z][a-z]+|xn--[a-z0-9-]*[a-z0-9]))"
    r"(?::(?P<port>[1-9][0-9]{0,4}))?(?:/[!-\[\]-~]*)?",
    re.IGNORECASE | re.ASCII,
)
_PORTS: Final = {"http": "80", "https": "443"}
_AROUND: Final = ".,;:!?()[]<>\"'"


def host_of(address: Any) -> str | None:
    """The host of an address, in small letters; None if it is none, or might be read as another one."""
    if not isinstance(address, str) or len(address) > limits.LONGEST_ADDRESS:
        return None
    found = _ADDRESS.fullmatch(address)
    if found is None or len(found["host"]) > limits.LONGEST_HOST:
        return None
    scheme, host, port = (found["scheme"] or "").lower(), found["host"].lower(), found["port"]
    if not scheme and "." not in host:
        return None
    return host if port is None or port == _PORTS.get(scheme) else f"{host}:{port}"


def lead_to(hosts: Hosts, parameters: Mapping[str, Any], named: Callable[[], frozenset[str]]) -> bool:
    """Whether all addresses among parameters lead to hosts that are named for them, or that `named` gives."""
    found = [(_hosts_in(parameters.get(parameter)), listed) for parameter, listed in hosts]
    if all(led and led <= listed for led, listed in found):
        return bool(found)
    return all(None not in led for led, _ in found) and all(led and led <= listed | named() for led, listed in found)


def hosts_among(hosts: Hosts, parameters: Mapping[str, Any]) -> frozenset[str]:
    """The hosts to which addresses among parameters lead."""
    found = (host for parameter, _ in hosts for host in _hosts_in(parameters.get(parameter)))
    return frozenset(host for host in found if host is not None)


def _hosts_in(value: Any) -> frozenset[str | None]:
    """The hosts of an address, or of a list of them; one that leads to none is None."""
    return frozenset(map(host_of, value if isinstance(value, list) else [value]))


def host_problems(said: Any, *at: str | int) -> Iterator[Problem]:
    """Problems of the hosts that a declaration names for parameters."""
    if not isinstance(said, Mapping):
        yield Problem(pointer(*at), 'must be an object of parameters, such as {"url": ["shop.example"]}')
        return
    for parameter, listed in said.items():
        if not isinstance(listed, list | tuple) or len(listed) > limits.MOST_HOSTS:
            text = f'must be a list of at most {limits.MOST_HOSTS} hosts, such as ["shop.example"]'
            yield Problem(pointer(*at, parameter), text)
            continue
        for index, host in enumerate(listed):
            if host is None or host_of(host) != host:
                text = "is no host: write small letters without a scheme, as in shop.example, shop.example:8443"
                yield Problem(pointer(*at, parameter, index), text)


def hosts_named(values: Iterable[Any]) -> frozenset[str]:
    """The hosts that texts name, by an address or by the name alone, among other words."""
    found, left = set[str](), limits.HOSTS_READ
    for value in values:
        for _, text in strings(value):
            if (left := left - len(text)) < 0:
                return frozenset(found)
            words = (word.strip(_AROUND) for word in text.split() if "." in word)
            found.update(host for word in words if (host := host_of(word)) is not None)
    return frozenset(found)


def is_of_people(text: Message) -> bool:
    """Whether a text of a context was handed in, and is no answer of a model."""
    return not is_written(text) and text.get("role", "user") in ("user", "system")
