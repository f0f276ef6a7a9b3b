"""Rules of a run: which calls start without a question, since a person was shown one like them (SPEC R16.8).

A rule is made of one held call. It names the call's tool and code, and says of each parameter on which others would
decide what its value may be:

    {"iban": "words", "amount": {"at_most": 50}, "note": {"one_of": ["rent", "tea"]}, "subject": "any"}

`words` is a text in the user's own words, or a list of such texts: a message of the run that no call wrote, and nobody
else, has it, as a whole. `one_of` gives the values, `shown` stands for the one that was shown, `at_most` for a number
from 0 to the bound. `any` is whatever comes from the sources that were shown, of the type that was shown; what has
numbers in it needs a bound.

A rule admits a call only from sources that the shown call had, for the same parameters. If a model wrote the call after
it was shown what others wrote, they decide every parameter, also one that is no reference. A rule admits no call that
`config.approve` holds, whose end is not known, that runs for each element, gathers, sees data of others in a scope, or
is answered by a delegate or a model: people are asked about each of those.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from . import limits
from .calls.call import Call
from .calls.tools import Executor
from .errors import Problem, one_line, pointer
from .messages import CHOSEN, DATA_TYPES, ERROR, FIELDS, TEXT_TYPES, TRUST, Message
from .paths import MISSING
from .references import DAGGER
from .state.labels import TRUSTED, Labels
from .trust import Doubt, parameter_at

ANY: Final = "any"
AT_MOST: Final = "at_most"
ONE_OF: Final = "one_of"
SHOWN: Final = "shown"
WORDS: Final = "words"
_GRAMMAR: Final = 'must be "shown", "words", "any", {"one_of": […]} or {"at_most": NUMBER}'
_NUMBERS: Final = ("number", "integer")
_TYPES: Final[Mapping[type, str]] = {str: "text", bool: "boolean", list: "list", dict: "object", type(None): "null"}
_OPENING: Final = frozenset("\"'([{<«„“")
_CLOSING: Final = frozenset("\"')]}>»”“,;")
_STOPS: Final = frozenset(".!?:")
_BESIDE_DATA: Final = ("type", "kind", "role", "schema", "title", "description")
_USERS: Final = ("user", "system", "developer")

# Words: what the user has said, in messages that no call wrote and nobody else.


class UserWords:
    """Texts in the user's own words."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        self._texts: list[str] = []
        self._heard = list(messages)
        """Messages that were not searched for texts yet."""

    def hear(self, message: Message) -> None:
        """Take in a message of the run that no call wrote."""
        self._heard.append(message)

    def have(self, value: Any) -> bool:
        """Whether a text, or each text of a list, stands in the user's words as a whole."""
        for message in self._heard:
            self._texts += _words(message)
        self._heard.clear()
        values = value if isinstance(value, list) and value else [value]
        return all(isinstance(one, str) and any(_has(text, one) for text in self._texts) for one in values)


def _words(message: Message) -> Iterator[str]:
    """The texts of a message; one that others wrote, a model, or the engine has none."""
    kind, role = message.get("type"), message.get("role")
    is_text = kind in TEXT_TYPES or (kind is None and role in _USERS)
    if (is_text or kind in DATA_TYPES - {ERROR}) and not any(map(message.get, (TRUST, CHOSEN, FIELDS))):
        yield from _texts({key: part for key, part in message.items() if key not in _BESIDE_DATA})


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from () if str(key).startswith("_") else _texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)


def _has(text: str, part: str) -> bool:
    """Whether a part stands in a text, and is not the middle of something longer there."""
    if len(part) < limits.SHORTEST_WORDS or part != part.strip():
        return False
    at = text.find(part)
    while at >= 0:
        end = at + len(part)
        if _opens(text[max(0, at - 1) : at]) and _closes(text[end : end + 2]):
            return True
        at = text.find(part, at + 1)
    return False


def _opens(before: str) -> bool:
    return not before or before.isspace() or before in _OPENING


def _closes(after: str) -> bool:
    if not after or after[0].isspace() or after[0] in _CLOSING:
        return True
    return after[0] in _STOPS and (len(after) == 1 or after[1].isspace() or after[1] in _CLOSING)


# Rules: made of a call that was shown, never wider than the grammar above.


@dataclass(frozen=True, slots=True)
class RunRule:
    """One rule, as the log has it."""

    tool: str
    code: str
    """The activity that runs the calls."""
    parameters: Mapping[str, Mapping[str, Any]]
    """What the value of each parameter may be: `one_of`, `words`, `at_most` or `any`."""
    sources: Mapping[str, Labels]
    """The sources of each parameter that decides, in the call that was shown."""
    chosen: Labels = TRUSTED
    """The sources that had a say in whether that call ran."""
    call: str = ""
    """The call that was shown."""
    shown: str = ""
    """The digest of what was shown of it."""

    def admits(self, call: Call, doubt: Doubt, parameters: Mapping[str, Any], words: UserWords) -> bool:
        """Whether a call may start with these parameters, since all that others would decide is as the rule says."""
        fit = (_fits(said, parameters.get(name, MISSING), words) for name, said in self.parameters.items())
        return is_like(self, call, doubt) and all(fit)

    def covers(self, call: Call, doubt: Doubt) -> bool:
        """Whether the sources of a call are those of the call that was shown, and each parameter is in the rule."""
        given = _decided(call, doubt).items()
        is_known = all(labels <= self.sources.get(name, TRUSTED) and name in self.parameters for name, labels in given)
        return is_known and doubt.chosen <= self.chosen

    @property
    def has_values(self) -> bool:
        """Whether the rule names values, those of the call that was shown among them."""
        return any(said.get(ONE_OF) for said in self.parameters.values())

    def without_values(self) -> RunRule:
        """The rule without its values, which are deleted: it admits none in their places."""
        kept = {name: {ONE_OF: []} if ONE_OF in said else said for name, said in self.parameters.items()}
        return replace(self, parameters=kept, shown="")

    def __str__(self) -> str:
        said = [f"{name} {_told(one)}" for name, one in self.parameters.items()]
        others = sorted(self.chosen.union(*self.sources.values()))
        chosen = [f"also where {' and '.join(sorted(self.chosen))} had a say in whether it runs"] if self.chosen else []
        calls = " with ".join((f"any call of {self.tool}", *said[:1]))
        parts = (calls, *said[1:], *chosen, f"from {', '.join(others)}", "nothing else that others wrote decides")
        return one_line("; ".join(parts))

    def to_dict(self) -> dict[str, Any]:
        """The rule in JSON."""
        return {
            "tool": self.tool,
            "code": self.code,
            "parameters": {name: dict(said) for name, said in self.parameters.items()},
            "sources": {name: sorted(labels) for name, labels in self.sources.items()},
            "chosen": sorted(self.chosen),
            "call": self.call,
            "shown": self.shown,
        }

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> RunRule:
        """Read what `to_dict` gives."""
        sources = {name: frozenset(labels) for name, labels in said["sources"].items()}
        about = said["tool"], said["code"], said["parameters"], sources, frozenset(said["chosen"])
        return cls(*about, said.get("call", ""), said.get("shown", ""))

    @classmethod
    def of(cls, said: Mapping[str, Any], call: Call, doubt: Doubt, parameters: Mapping[str, Any]) -> RunRule:
        """Make a rule without `rule_problems` of the call that was shown."""
        conditions = {name: _condition(one, parameters[name]) for name, one in said.items()}
        return cls(call.tool, call.runner.name, conditions, _decided(call, doubt), doubt.chosen)


def outside(call: Call, doubt: Doubt) -> str | None:
    """Why no rule is for a call; None where one may be."""
    if call.runner.executor is not Executor.ACTIVITY or call.given is not MISSING:
        return "a model or a delegate answers it"
    if call.each or call.gather:
        return "it runs for each element, or reads in every instance"
    if any(call.prompt_labels or scope.kind in doubt.given for scope in call.scopes):
        return "others decide what its scopes show"
    return None


def _decided(call: Call, doubt: Doubt) -> Mapping[str, Labels]:
    """What others decide of a call, with their sources."""
    written = {name: call.prompt_labels | doubt.given.get(name, TRUSTED) for name in call.parameters}
    return {**doubt.given, **written} if call.prompt_labels else doubt.given


def rule_problems(
    said: Any, call: Call, doubt: Doubt | None, parameters: Mapping[str, Any], words: UserWords
) -> Iterator[Problem]:
    """Problems of a rule that a person gives with the approval of a call: it has to admit that call, and no more than
    the grammar says.
    """
    why = "it does not wait for what others wrote" if doubt is None else outside(call, doubt)
    if why is not None or doubt is None:
        yield Problem("", f"no rule is for this call, since {why}: approve it alone")
        return
    if not isinstance(said, Mapping):
        yield Problem("", 'must be an object, such as {"iban": "words", "amount": {"at_most": 50}}')
        return
    for name in sorted(_decided(call, doubt).keys() - said.keys()):
        yield Problem("", f'others decide {name}: say what it may be, such as {{"{name}": "{SHOWN}"}}')
    for name, one in said.items():
        if name not in parameters:
            yield Problem(pointer(name), f"the call has no parameter {name!r}")
        else:
            yield from (Problem(pointer(name), text) for text in _condition_faults(one, parameters[name], words))


def _condition_faults(said: Any, shown: Any, words: UserWords) -> Iterator[str]:
    keyed = dict(said) if isinstance(said, Mapping) and len(said) == 1 else {}
    values, bound = keyed.get(ONE_OF), keyed.get(AT_MOST)
    if said == WORDS and not words.have(shown):
        yield "what was shown does not stand, as a whole, in a message of the user that nobody else wrote"
    elif said == ANY and _has_number(shown):
        yield f'has numbers, which need a bound: {{"{AT_MOST}": NUMBER}}, or {{"{ONE_OF}": […]}}'
    elif ONE_OF in keyed and not (isinstance(values, list) and 0 < len(values) <= limits.FEW_VALUES):
        yield f"{ONE_OF} must be a list of 1 to {limits.FEW_VALUES} values"
    elif AT_MOST in keyed and not _is_number(bound):
        yield f"{AT_MOST} must be a number"
    elif keyed.keys() <= {ONE_OF, AT_MOST} and (keyed or said in (SHOWN, WORDS, ANY)):
        if not _fits(_condition(said, shown), shown, words):
            yield "does not admit what was shown: let it admit that, or approve the call alone"
    else:
        yield _GRAMMAR


def _condition(said: Any, shown: Any) -> dict[str, Any]:
    if said == SHOWN:
        return {ONE_OF: [shown]}
    if said == WORDS:
        return {WORDS: True}
    return {ANY: _type(shown)} if said == ANY else dict(said)


def _fits(said: Mapping[str, Any], value: Any, words: UserWords) -> bool:
    [(how, what)] = said.items()
    if value is MISSING:
        return False
    if how == ONE_OF:
        return any(_written(value) == _written(one) for one in what)
    if how == AT_MOST:
        return _is_number(value) and 0 <= value <= what
    if how == WORDS:
        return words.have(value)
    return how == ANY and _type(value) == what and not _has_number(value)


def _written(value: Any) -> str:
    """A value as it can be compared: `true` is not 1, nor is 1.0."""
    return json.dumps(value, sort_keys=True)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _has_number(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_has_number, value.values()))
    return any(map(_has_number, value)) if isinstance(value, list) else _is_number(value)


def _type(value: Any) -> str:
    return _TYPES.get(type(value), "number")


def _told(said: Mapping[str, Any]) -> str:
    [(how, what)] = said.items()
    if how == ONE_OF and not what:
        return "that is one of values that were deleted"
    if how == ONE_OF:
        values = ", ".join(json.dumps(one, ensure_ascii=False) for one in what)
        return f"that is {values}" if len(what) == 1 else f"that is one of {values}"
    if how == AT_MOST:
        return f"from 0 to {what}"
    return "in the user's own words" if how == WORDS else f"that is any {what}"


# The rules of a run, as far as its log was read.


@dataclass(slots=True)
class RunRules:
    """The rules in force, by the ids of their entries in the log."""

    given: dict[str, RunRule] = field(default_factory=dict)
    last: str = ""
    """The entry that has changed them last."""
    words: UserWords = field(default_factory=UserWords)

    def give(self, id_: str, rule: RunRule) -> None:
        """Take in that a rule is given."""
        self.given[id_] = rule
        self.last = id_

    def revoke(self, id_: str, rule: str) -> None:
        """Take in that a rule holds no longer."""
        self.given.pop(rule, None)
        self.last = id_

    def admitting(self, call: Call, doubt: Doubt, parameters: Mapping[str, Any]) -> str:
        """The rule that lets a call start; empty where none does."""
        return next((id_ for id_, rule in self.given.items() if rule.admits(call, doubt, parameters, self.words)), "")


# Proof: which calls of a plan a rule lets start for certain, and which only where their values fit it (SPEC R16.5).


def is_like(rule: RunRule, call: Call, doubt: Doubt) -> bool:
    """Whether a rule may let a call start that would be held for all that others may decide there."""
    is_same = (rule.tool, rule.code) == (call.tool, call.runner.name)
    return is_same and outside(call, doubt) is None and rule.covers(call, doubt)


def is_certain(rule: RunRule, call: Call, properties: Mapping[str, Any], words: UserWords) -> bool:
    """Whether a rule lets a call start that it `is_like`, whatever the values come to be: what is written in the call
    fits it, and of the others their schemas, the tool's `properties`, leave nothing that does not.
    """
    read = {parameter_at(at) for at, _ in call.reads}
    return all(
        _always_fits(said, properties.get(name))
        if name in read
        else _is_plain(call.parameters.get(name)) and _fits(said, call.parameters.get(name, MISSING), words)
        for name, said in rule.parameters.items()
    )


def _always_fits(said: Mapping[str, Any], schema: Any) -> bool:
    [(how, what)] = said.items()
    if not isinstance(schema, Mapping):
        return False
    if how == ANY:
        return schema.get("type") == {"text": "string"}.get(what, what) and what in ("text", "boolean", "null")
    if how == ONE_OF:
        values = schema.get("enum")
        return isinstance(values, list) and all(_fits(said, value, _NO_WORDS) for value in values)
    ends = [schema.get("minimum"), schema.get("maximum")]
    is_bounded = how == AT_MOST and schema.get("type") in _NUMBERS and all(map(_is_number, ends))
    return is_bounded and all(_fits(said, end, _NO_WORDS) for end in ends)


def _is_plain(value: Any) -> bool:
    """Whether a value as it is written is what it comes to be: nothing in it is escaped."""
    return not any(DAGGER in text for text in _texts({"value": value}))


_NO_WORDS: Final = UserWords()
