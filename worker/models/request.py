"""What a model is asked, what it answers, and what a model is.

A model is one method: `async def ask(self, request: ModelRequest, on_text: OnText) -> Answer`. The caller is on the
event loop of the process, so that waiting for an answer costs no thread.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from acts_celery.protocol.language.limits import MOST


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What a model is asked (SPEC R12.5, R12.3)."""

    messages: Sequence[Mapping[str, Any]]
    """Chat messages, `{"role", "content"}`; a content is a text, or whatever a chat message of the context holds."""
    schema: Any = None
    """The JSON Schema of the answer; None where any JSON value will do."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """`model`, `temperature`, `top_p`, `seed`, `stop`, `reasoning_effort`, `max_output_tokens`, `request_seconds` (SPEC
    R13.3); `wire` and `tool_choice`, where its tools go as functions; other keys are passed over.
    """
    provider_data: Mapping[str, str] = field(default_factory=dict)
    """What a provider has said beside the answers of earlier ticks, by tick (see `provider_data`)."""

    @property
    def text(self) -> str:
        """All that its messages say, one below the other."""
        return "\n".join(_content(message) for message in self.messages)

    @property
    def continues(self) -> bool:
        """Whether it is one of a loop, whose next request begins with this one."""
        properties = self.schema.get("properties", {}) if isinstance(self.schema, Mapping) else {}
        return "calls" in properties

    @property
    def shown(self) -> dict[str, Any]:
        """What an answer may depend on, but for the model."""
        settings = {key: value for key, value in self.config.items() if key not in ("model", "request_seconds")}
        return {"messages": list(self.messages), "schema": self.schema, "settings": settings}

    @property
    def digest(self) -> str:
        """By which it is known again: the same for the same messages, schema and settings, whichever model is asked."""
        text = json.dumps(self.shown, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def count_of(value: Any) -> int | None:
    """A number of tokens that a provider reports; None where it is none, or beyond what any answer takes."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST else None


@dataclass(frozen=True, slots=True)
class Usage:
    """What an answer cost, in tokens as the provider counts them."""

    input: int
    output: int
    cached: int = 0
    """How many of the input's tokens were read from the provider's cache."""
    written: int = field(default=0, compare=False)
    """How many of them were written to it: some providers take more for these."""
    is_whole: bool = True
    """Whether it is all; else the answer may have taken more output since."""

    def to_dict(self) -> dict[str, int]:
        """As the log has it (SPEC R13.5)."""
        counts = {"input": self.input, "output": self.output, "cached": self.cached}
        return counts if self.is_whole else {**counts, "is_whole": False}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model has written, as it has written it: nothing of it has been validated."""

    text: str
    model: str
    """The model's name as the provider reports it."""
    usage: Usage | None = None
    """None where the provider does not say."""
    duration_seconds: float = 0.0
    nanodollars: int | None = None
    """What it cost, where a price is known: billionths of a US dollar."""
    is_fallback: bool = False
    """Whether another model has answered than the one that was named."""
    words: str = ""
    """What was said beside the calls, where the tools go as functions (SPEC R12.6); no part of the text."""
    provider_data: str = ""
    """What the provider said besides, which its model is to be sent back (see `provider_data`)."""
    findings: tuple[str, ...] = ()
    """What could not be enforced on the wire, one sentence each (SPEC R12.6)."""


class Model(Protocol):
    """Anything that answers requests."""

    async def ask(self, request: ModelRequest, on_text: OnText) -> Answer:
        """Answer a request, once. Raises `ModelError`."""
        ...


@runtime_checkable
class Loading(Protocol):
    """A model that has to load something before it can be asked, such as an SDK."""

    async def prepare(self) -> None:
        """Load it, unless that was done."""
        ...


@runtime_checkable
class Listing(Protocol):
    """A model of an endpoint that can be asked which models it has."""

    async def names(self, seconds: float) -> list[str]:
        """Their names, waited for as long. Raises `ModelError`, `TimeoutError`."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


@dataclass(frozen=True, slots=True)
class Reported:
    """What a provider has said of the usage before the answer is whole, told between the pieces."""

    usage: Usage
    nanodollars: int | None = None
    """What it may come to, where a price is known."""


OnText = Callable[[str | Reported], None]
"""Called on the event loop with each piece of an answer's text as it comes, where the provider streams."""


class Words(str):
    """A piece of what a model says beside its calls, told as an output that is a text, which it is if no call follows.
    It is no part of the answer: that begins with the next piece that is none of these.
    """

    __slots__ = ()


def ignore(_: str | Reported) -> None:
    """An `OnText` that does nothing, for a caller that waits for the whole answer."""
