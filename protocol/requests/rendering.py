"""Rendering: the messages in which a model is asked (SPEC R12.5).

`render` gives those of the first request, `render_tick` what is appended behind a tick. Nothing that was sent is ever
changed, so the messages of a tick begin with those of the one before, byte for byte, and providers can cache them.

    ## Data: †state ①
    Description: what it is for
    Schema: {"type":"object"}
    {"text":"Hello"}

Every value stands on one line, whatever it holds, and hides nothing: data cannot forge a heading. Provenance is in none
of it (SPEC R1.4).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from acts_celery.protocol.calls.tools import Tool
from acts_celery.protocol.language.errors import Problem, Rejected
from acts_celery.protocol.language.limits import Limits
from acts_celery.protocol.language.messages import DATA_TYPES, ERROR, TEXT_TYPES, Message, is_written, kind_of, shown
from acts_celery.protocol.language.paths import MISSING, copied
from acts_celery.protocol.language.references import DAGGER
from acts_celery.protocol.language.templates import escaped
from acts_celery.protocol.language.visible import json_text, one_line
from acts_celery.protocol.state.allowance import TooLarge
from acts_celery.protocol.state.context import Context

from . import texts
from .request import Request

ChatMessage = dict[str, Any]
"""`{"role": "system" or "user", "content": text}`; a chat message of the context stays as it is."""
Identity = tuple[str, str | None]
"""Under what data is known: its kind, and the instance that it belongs to."""
_KIND: Final = re.compile(r"[^\W\d_][\w-]*")
_TEXT_KEYS: Final = ("message", "text", "content")
_MOST_BYTES: Final = Limits().call_bytes
_COMPARED: Final = 8
"""To find what a tick has changed, so many times what may be sent is looked at."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a call of a tick; `path` is where it has written, or was to write."""

    index: int
    tool: str
    instance: str | None
    fate: str
    path: str | None = None
    reason: str | None = None


def render(request: Request) -> list[ChatMessage]:
    """The messages of the first request. Raises `Rejected` where they are too large."""
    has_instances = bool(request.instances)
    if request.is_staged:
        tools = list(map(_tool, request.tools.values()))
        text = texts.staged_opening(tools, has_instances=has_instances, is_lazy=request.is_lazy)
    else:
        text = texts.opening(
            has_tools=bool(request.tools),
            has_instances=has_instances,
            has_lists=any(tool.lists for tool in request.tools.values()),
            is_lazy=request.is_lazy,
        )
    context, show_bytes = request.submission.context, request.config.get("show_bytes")
    try:
        rendered = render_context(context, show_bytes, request.known.limits.call_bytes)
    except TooLarge as error:
        raise Rejected([Problem("/context", str(error))]) from None
    return [_chat("system", text), *rendered]


def render_slots(tick: int, slots: Iterable[tuple[str, str, str | None]]) -> list[ChatMessage]:
    """What follows the first answer of a staged tick: for each slot its name, its tool, and where its call writes."""
    lines = [f"{name}. {one_line(tool)}{f' → {one_line(path)}' if path else ''}" for name, tool, path in slots]
    return [_chat("user", "\n".join([texts.slots_heading(tick), *(lines or [texts.NO_CALLS])]))]


def _tool(tool: Tool) -> str:
    """A tool as a model that chooses is shown it: its description, and the names of its parameters."""
    named = [name for name in tool.document["properties"] if not name.startswith("_")]
    description = tool.declaration.get("description")
    said = f": {' '.join(description.split())}" if isinstance(description, str) else ""
    return one_line(f"- {tool.name}({', '.join(named)}){said}")


def render_context(
    messages: Sequence[Message], show_bytes: int | None = None, most_bytes: int = _MOST_BYTES
) -> list[ChatMessage]:
    """A context as a model sees it: every data identity once, where its first message stood, with its folded value.

    Each instance is shown what all of them see, too. Raises `TooLarge` as soon as that is more than may be sent.
    """
    data = _Data(messages, show_bytes, most_bytes)
    rendered: list[ChatMessage] = []
    seen: set[Identity] = set()
    for message in messages:
        type_ = message.get("type")
        if type_ in DATA_TYPES:
            identity = _identity(message)
            if identity not in seen:
                seen.add(identity)
                rendered.append(_chat("user", data.shown(identity)))
        elif type_ in TEXT_TYPES:
            rendered.append(_chat("system" if type_ == "system" else "user", _text_of(message)))
        elif type_ == "plan":
            rendered.append(_chat("user", _plan(_planned(message))))
        elif type_ is None and "role" in message:
            rendered.append(shown(message))
    return rendered


def render_tick(
    request: Request,
    tick: int,
    fates: Iterable[Fate],
    before: Sequence[Message],
    new: Sequence[Message],
    plan: Sequence[Mapping[str, Any]] = (),
    times: int = 1,
) -> list[ChatMessage]:
    """What follows a tick: a receipt of its calls, the values that it has changed, whole, every error, and the plan.

    `before` are the messages of the log as the tick was asked with, `new` those that came since, its errors among them.
    `plan` are the calls of its solution, shown where the context holds a plan message (SPEC R13.6). `times` says how
    many ticks in a row have come to the same. Raises `TooLarge`.
    """
    show_bytes = request.config.get("show_bytes")
    parts = ["\n".join([texts.tick_heading(tick), *(map(_receipt, fates))])]
    if len(lines := parts[0].splitlines()) == 1:
        parts = [f"{lines[0]}\n{texts.NO_CALLS}"]
    if times > 1:
        parts[0] += f"\n{texts.repeated(times)}"
    parts += _changed(before, new, show_bytes, _COMPARED * request.known.limits.call_bytes)
    parts += [f"{texts.ERROR} {_cut(_error(message), show_bytes)}" for message in new if message.get("type") == ERROR]
    if any(message.get("type") == "plan" for message in request.submission.context):
        parts.append(_plan(plan))
    return [_chat("user", "\n\n".join(parts))]


def _changed(
    before: Sequence[Message], new: Sequence[Message], show_bytes: int | None, most_bytes: int
) -> Iterator[str]:
    """The data whose value, schema or description is another one."""
    was, now = _Data(before, None, most_bytes), _Data([*before, *new], None, most_bytes)
    brought = {_identity(message)[0] for message in new if message.get("type") in DATA_TYPES} - {ERROR}
    for identity in now.identities:
        if identity[0] in brought and (identity not in was.identities or was.shown(identity) != now.shown(identity)):
            now.show_bytes = show_bytes
            yield now.shown(identity)
            now.show_bytes = None


class _Data:
    """The data of a context, by identity; all together it is rendered up to a number of bytes."""

    def __init__(self, messages: Sequence[Message], show_bytes: int | None, most_bytes: int) -> None:
        self.show_bytes = show_bytes
        self._most_bytes = self._left_bytes = most_bytes
        self._context = Context.trusted(messages)
        self.identities: dict[Identity, list[Message]] = {}
        for message in messages:
            if message.get("type") in DATA_TYPES:
                self.identities.setdefault(_identity(message), []).append(message)

    def shown(self, identity: Identity) -> str:
        """One identity: its heading, what is said of it, and its value as its reader sees it. Raises `TooLarge`."""
        kind, instance = identity
        name = DAGGER + kind if _KIND.fullmatch(kind) else compact(kind)  # what cannot be referred to is quoted
        lines = [f"## Data: {name}" + (f" {one_line(instance)}" if instance is not None else "")]
        messages = self.identities[identity]
        descriptions = [m["description"] for m in messages if isinstance(m.get("description"), str)]
        schemas = [m["schema"] for m in messages if "schema" in m and not is_written(m)]
        lines += [f"Description: {one_line(' '.join(text.split()))}" for text in descriptions[-1:]]
        lines += [f"Schema: {compact(schema)}" for schema in schemas[-1:]]
        value = self._context.fold(instance).root(kind)
        if value is not MISSING:
            text = escaped(compact(copied(value)))  # what is copied into an answer stays a text
            self._take(text)
            lines.append(_cut(text, self.show_bytes))
        return "\n".join(lines)

    def _take(self, text: str) -> None:
        self._left_bytes -= len(text)  # not encoded: what is counted may be a quarter of the bytes
        if self._left_bytes < 0:
            raise TooLarge(
                f"a model would be shown more than {self._most_bytes} bytes of data (ACTS_LIMIT_CALL_BYTES): hand in "
                "less, or have delegates read what is large"
            )


def compact(value: Any) -> str:
    """A value as JSON on one line."""
    return json_text(value, separators=(",", ":"))


def _cut(text: str, show_bytes: int | None) -> str:
    """A text as far as it may be shown; a cut one says so."""
    encoded = text.encode()
    if show_bytes is None or len(encoded) <= show_bytes:
        return text
    kept = encoded[:show_bytes].decode(errors="ignore")
    return f"{kept}… {texts.CUT.format(size=len(encoded), shown=len(kept.encode()))}"


def _receipt(fate: Fate) -> str:
    """One line: index, tool, instance, fate, path, reason."""
    instance = f" {one_line(fate.instance)}" if fate.instance is not None else ""
    path = f" → {one_line(fate.path)}" if fate.path is not None else ""
    reason = f" ({one_line(fate.reason)})" if fate.reason else ""
    return f"{fate.index}. {one_line(fate.tool)}{instance}: {fate.fate}{path}{reason}"


def _error(message: Message) -> str:
    """An error message, without what is not for readers."""
    return compact(message.get("data", shown(message)))


def _plan(calls: Iterable[Any]) -> str:
    return "\n".join([texts.PLAN, *(list(map(compact, calls)) or [texts.NO_CALLS])])


def _planned(message: Message) -> list[Any]:
    """The calls of a plan message."""
    inside: Any = message
    for key in ("plan", "calls"):
        inside = inside[key] if isinstance(inside, Mapping) and key in inside else inside
    return inside if isinstance(inside, list) else []


def _identity(message: Message) -> Identity:
    return kind_of(message), message.get("_instance")


def _text_of(message: Message) -> str:
    """The text of a text or system message; the whole message where it has none."""
    keys = (message["type"], *_TEXT_KEYS)
    text = next((message[key] for key in keys if key != "type" and isinstance(message.get(key), str)), None)
    found = text if text is not None else compact(shown(message))
    instance = message.get("_instance")
    return found if instance is None else f"{one_line(instance)}: {found}"


def _chat(role: str, content: str) -> ChatMessage:
    return {"role": role, "content": content}
