"""Profiles: how a request is put to a certain provider (SPEC R12.6).

OpenAI shows a model the schema that it enforces, and enforces what its strict mode can say. Servers that run open
models enforce by a grammar, which the model does not see, or not at all: there the schema stands in a message as well.
What a provider cannot say, or refuses, is not enforced, stands in a message, and is a finding.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .request import ModelRequest
from .wire_schema import Inexpressible, StrictMode, strict_schema

_SHOWN: Final = "Your whole answer is valid by this JSON Schema: "
_MOST_REMEMBERED: Final = 1_000


@dataclass(frozen=True, slots=True)
class Fitted:
    """A request as a provider takes it."""

    messages: list[dict[str, Any]]
    config: Mapping[str, Any]
    format: dict[str, Any] | None
    """The schema that is to be enforced."""
    is_strict: bool
    findings: tuple[str, ...] = ()


class Profile:
    """Fits requests; `mode` is None where any schema is sent as it is, and shown to the model in a message."""

    def __init__(self, mode: StrictMode | None) -> None:
        self._mode = mode
        self._refused: OrderedDict[str, str] = OrderedDict()
        """Why a schema is not enforced, by the schema."""

    def fitted(self, request: ModelRequest, *, refused: str | None = None) -> Fitted:
        """The request as it is sent; `refused` says why its schema cannot be enforced, where that is known."""
        messages = [dict(message) for message in request.messages]
        if request.schema is None:
            return Fitted(messages, request.config, None, is_strict=False)
        shown = _shown(request)
        reason = refused or self._refused.get(shown)
        if self._mode is not None and reason is None:
            try:
                return Fitted(messages, request.config, strict_schema(request.schema, self._mode), is_strict=True)
            except Inexpressible as error:
                reason = f"the provider's strict mode cannot say it: {error}"
                self._remember(shown, reason)
        # Behind the engine's own text, where it is the same in every tick, so that what was sent before is a prefix.
        messages[1:1] = [{"role": "system", "content": _SHOWN + shown}]
        if reason is not None:
            finding = f"the answer's schema is not enforced: {reason}"
            return Fitted(messages, request.config, None, is_strict=False, findings=(finding,))
        format_ = request.schema if isinstance(request.schema, dict) else {}
        return Fitted(messages, request.config, format_, is_strict=False)

    def note_refusal(self, request: ModelRequest, reason: str) -> None:
        """From now on the request's schema is sent unenforced: without it the provider takes the request."""
        self._remember(_shown(request), reason)

    def _remember(self, shown: str, reason: str) -> None:
        self._refused[shown] = reason
        while len(self._refused) > _MOST_REMEMBERED:
            self._refused.popitem(last=False)


def _shown(request: ModelRequest) -> str:
    """The schema as a model is shown it."""
    return json.dumps(request.schema, ensure_ascii=False, separators=(",", ":"))
