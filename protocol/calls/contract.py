"""Contracts: what registered code takes and gives, and whether it admits a call that was checked under another one
(SPEC R17).

A run keeps of each activity that its calls name a *mark*: the digest of the contract under which they were checked, and
the scopes that it asked for. Code whose contract has that digest takes its calls. Any other contract has to admit each
call by itself, with its resolved parameters; so one that takes more than before changes nothing for what is under way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, Final

from acts_celery.protocol.language.errors import Problem, pointer

from .tools import GRANTED, WHO, Tool

CONTRACT_CHANGED: Final = "ContractChanged"
"""The type of the error of a call for which no code came that admits it (SPEC R17.3)."""
SEVERAL: Final = "*"
"""The mark of calls of one run that were checked under several contracts: each contract has to admit them."""
_DIGITS: Final = 12
_BESIDE: Final = (*WHO, "_output")
"""Meta-properties that say nothing of what code is given."""


@dataclass(frozen=True)
class Contract:
    """What an activity takes and gives, by its schema (SPEC R4.1a)."""

    name: str
    schema: Mapping[str, Any]

    @cached_property
    def digest(self) -> str:
        """12 hexadecimal digits; the same for equal schemas."""
        return digest_of(json.dumps(self.schema, sort_keys=True, default=str).encode())

    @cached_property
    def mark(self) -> str:
        """What a run keeps of it: its digest, and the scopes that it asks for, separated by spaces."""
        return " ".join((self.digest, *sorted(self.scopes)))

    @cached_property
    def scopes(self) -> frozenset[str]:
        """The kinds that the function takes as keyword-only parameters."""
        said = self.schema.get("properties", {}).get("_scopes", {})
        return frozenset(said.get(GRANTED, ()) if isinstance(said, Mapping) else ())

    @cached_property
    def tool(self) -> Tool:
        """The same as a tool."""
        return Tool(self.name, self.schema)

    def is_of(self, mark: str) -> bool:
        """Whether calls with this mark were checked under it."""
        return mark.partition(" ")[0] == self.digest

    def problems(
        self, properties: Mapping[str, Any], mark: str, *, lenient: bool = False, is_secret: bool = True
    ) -> list[Problem]:
        """What it has against a call that was checked under the contract of a mark: completed properties, with resolved
        parameters, or with stand-ins for expressions where it is `lenient`. Values are shown unless they are secret.
        """
        if self.is_of(mark):
            return []
        given = {key: value for key, value in properties.items() if key not in _BESIDE}
        found = self.tool.problems(given, lenient=lenient, is_secret=is_secret)
        return [*found, *self._missing_scopes(properties, mark)]

    def _missing_scopes(self, properties: Mapping[str, Any], mark: str) -> Iterator[Problem]:
        """The scopes that it asks for, the contract of a mark did not, and the call does not give."""
        digest, *asked = mark.split(" ")
        given = {str(scope).lstrip("†").split(".")[0] for scope in properties.get("_scopes", ())}
        if digest != SEVERAL and (missing := self.scopes - given - {*asked}):
            yield Problem(pointer("_scopes"), f"the code asks for {', '.join(sorted(missing))}, which it is not given")


def merged(marks: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """The marks of a run to which calls with other marks are added."""
    unlike = {name: SEVERAL for name in marks.keys() & others.keys() if marks[name] != others[name]}
    return {**marks, **others, **unlike}


def digest_of(data: bytes) -> str:
    """A digest for people: 12 hexadecimal digits."""
    return sha256(data).hexdigest()[:_DIGITS]
