"""Models of other providers - Gemini, Bedrock, Mistral, Groq, Cohere, OpenAI's Responses - through pydantic-ai.

A model `pydantic-ai:google:gemini-3-pro` is asked through pydantic-ai's direct interface, without an agent. Its classes
know the provider; here a request becomes its messages, settings and parameters, the parts of its answer become pieces
of ours, and its errors ours (SPEC R12.6, R13.4). What is sent and received in bytes is the provider's client's affair.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import inspect
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from ...broker_config import ConfiguredModel
from ..errors import WorkerError
from ..registry.models import (
    TOO_LONG,
    BadRequest,
    ContextTooLong,
    InvalidAnswer,
    ModelError,
    OnText,
    RateLimited,
    Refused,
    Unreachable,
    Usage,
    count_of,
)
from .clients import OF_CONNECTIONS, TRACEPARENT, Bounds, error_texts, extra_body, masked, place_of
from .dialects import TEXT, in_turns, texts_in
from .fitting import Fitted, Fitting
from .sdk_model import EndpointModel, StreamedAnswer
from .streamed_calls import THINKING, Piece

PROVIDER: Final = "pydantic-ai"
"""The provider's name in the settings of models, and the name of the extra."""
_PACKAGE: Final = "pydantic_ai"
_OWN: Final = "pydantic_ai"
"""The field of a message, or of a call, with what pydantic-ai is to be given back."""
_SETTINGS: Final[Mapping[str, str]] = {
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "stop": "stop_sequences",
    "reasoning_effort": "thinking",
    "max_output_tokens": "max_tokens",
}
"""The names of `config` and pydantic-ai's. It leaves out silently what a provider has not: here that is an error."""
_EFFORTS: Final = frozenset({"minimal", "low", "medium", "high", "xhigh", "max"})
_OF_PARTS: Final = ("id", "provider_name", "provider_details")
_ERRORS: Final[tuple[tuple[str, type[ModelError]], ...]] = (
    ("ModelContextWindowExceededError", ContextTooLong),
    ("ModelQuotaExceededError", BadRequest),
    ("ModelRateLimitError", RateLimited),
    ("ModelUnavailableError", Unreachable),
    ("ModelServerError", Unreachable),
    ("ModelConnectionError", Unreachable),
    ("ModelRequestTimeout", Unreachable),
    ("ModelRequestRejectedError", BadRequest),
    ("ContentFilterError", Refused),
    ("UserError", BadRequest),
)
"""pydantic-ai's errors and ours; any other is an `InvalidAnswer`."""


def verify_installed(configured: ConfiguredModel) -> None:
    """Raise `WorkerError` where the extra is missing."""
    if find_spec(_PACKAGE) is None:
        text = f"its Python package is missing: pip install '.[{PROVIDER}]' in the clone of acts-celery"
        raise WorkerError(f"model {configured.model}: {text}, and pydantic-ai-slim's own extra of the provider")


def as_enforced(configured: ConfiguredModel, known: Mapping[str, Any]) -> ConfiguredModel:
    """The settings of a model with a profile no stronger than what pydantic-ai can have enforced of a schema."""
    if configured.profile is not None or known.get("supports_json_schema_output"):
        return configured
    weaker = "json" if known.get("supports_json_object_output") else "text"
    return configured.model_copy(update={"profile": weaker})


def looked_up(configured: ConfiguredModel) -> ConfiguredModel:
    """The settings as `as_enforced` has them, by what the installed package says; as they are where it is not there."""
    if find_spec(_PACKAGE) is None:
        return configured
    models = import_module(f"{_PACKAGE}.models")
    try:
        return as_enforced(configured, models.infer_model_profile(configured.name))
    except ImportError:  # the provider's own package
        return configured


def missing_in(configured: ConfiguredModel, config: Mapping[str, Any]) -> list[str]:
    """The settings of a `config` that the model has not; none where the package is not there, or cannot make it."""
    wanted = [key for key in _SETTINGS if config.get(key) is not None]
    if not wanted or find_spec(_PACKAGE) is None:
        return []
    try:
        return [key for key in wanted if key in _missing(_made(configured, key="none"))]
    except (ModelError, ImportError):
        return []


def _missing(model: Any) -> set[str]:
    profile = model.profile
    unsupported = {*model.unsupported_settings, *profile.get("openai_unsupported_model_settings", ())}
    if not profile.get("supports_thinking"):
        unsupported.add("thinking")
    return {ours for ours, theirs in _SETTINGS.items() if theirs in unsupported}


def _made(configured: ConfiguredModel, key: str | None = None) -> Any:
    """The model of pydantic-ai. Raises `BadRequest` for what it cannot make, and `ImportError`."""
    ai = import_module(_PACKAGE)
    providers, models = import_module(f"{_PACKAGE}.providers"), import_module(f"{_PACKAGE}.models")

    def provider(name: str) -> Any:
        given = {} if key is None else {"api_key": key}
        if configured.api_key is not None:
            given["api_key"] = configured.api_key.get_secret_value()
        if configured.base_url is not None:
            given["base_url"] = configured.base_url.get_secret_value()
        if not given or name.startswith("gateway/"):
            return providers.infer_provider(name)
        made = providers.infer_provider_class(name)
        taken = inspect.signature(made).parameters
        if absent := sorted(given.keys() - taken.keys()) if key is None else ():
            raise BadRequest(f"{configured.model} takes no {' and no '.join(absent)}: it has its own variables")
        return made(**{name: value for name, value in given.items() if name in taken})

    try:
        return models.infer_model(configured.name, provider)
    except (ai.UserError, ValueError) as error:
        raise BadRequest(masked(f"{configured.model} cannot be made: {error}", configured)) from None


class PydanticModel(EndpointModel):
    """One model of pydantic-ai. To be used on one event loop."""

    package = f"{_PACKAGE}.direct"

    def __init__(self, configured: ConfiguredModel, bounds: Bounds) -> None:
        super().__init__(configured, bounds, url="")
        self._model: Any = None

    async def prepare(self) -> None:
        """Load pydantic-ai and the provider's package, and make the model, unless that is done. Raises `BadRequest`."""
        await super().prepare()
        if self._model is None:
            try:
                self._model = await asyncio.to_thread(_made, self._configured)
            except ImportError as error:
                raise BadRequest(f"{self._configured.model} cannot be made: {error}") from None
            self._fitting = Fitting(as_enforced(self._configured, self._model.profile), self._url)

    async def names(self, seconds: float) -> list[str] | None:
        """Make the model; what its endpoint lists is not asked. Raises `ModelError`."""
        await self.prepare()
        return None

    async def close(self) -> None:
        """Close the connections. A model that is asked again opens others."""
        model, self._model = self._model, None
        if model is not None:
            async with model:  # entered and left, it closes what its provider has opened
                pass

    async def _answer(self, sent: Fitted, written: StreamedAnswer, on_text: OnText) -> None:
        ai = import_module(_PACKAGE)
        asked: dict[str, Any] = {
            "model_settings": self._settings(sent),
            "model_request_parameters": _parameters(ai, sent),
            "instrument": False,
        }
        messages = messages_for(ai, in_turns(sent.messages))
        taking = _Taking(ai, written, self._bounds.stream_bytes)
        async with self._sdk.model_request_stream(self._model, messages, **asked) as stream:
            async for event in stream:
                written.usage = _usage(stream.usage) or written.usage
                written.pass_on(taking.event(event), on_text)
            written.usage = _usage(stream.usage) or written.usage
            taking.finish(stream.get(), has_endpoint=self._model.provider is not None)

    def _settings(self, sent: Fitted) -> dict[str, Any]:
        """The settings of a request. Raises `BadRequest` for one that the model has not: it would pass it over."""
        wanted = {ours: sent.config[ours] for ours in _SETTINGS if sent.config.get(ours) is not None}
        unsupported = self._model.unsupported_settings
        added = extra_body(self._configured)
        absent = [*sorted(_missing(self._model) & wanted.keys())]
        if added and "extra_body" in unsupported:
            absent.append("extra_body")
        if absent:
            raise BadRequest(f"{self._configured.model} has no {', '.join(absent)}: leave it out of config")
        if isinstance(wanted.get("stop"), str):
            wanted["stop"] = [wanted["stop"]]
        if (effort := wanted.get("reasoning_effort")) is not None:
            if effort not in _EFFORTS and effort != "none":
                raise BadRequest(f"reasoning_effort {effort!r} is not one of none, {', '.join(sorted(_EFFORTS))}")
            wanted["reasoning_effort"] = False if effort == "none" else effort
        settings = {_SETTINGS[ours]: value for ours, value in wanted.items()}
        if sent.functions:
            settings["tool_choice"] = "required" if sent.must_call else "auto"
        optional: dict[str, Any] = {"max_retries": 0, **({"extra_body": added} if added else {})}
        if (place := TRACEPARENT.get()) is not None:
            optional["extra_headers"] = {"traceparent": place}
        return {**settings, **{key: value for key, value in optional.items() if key not in unsupported}}

    def _errors(self) -> AbstractContextManager[None]:
        return _errors_of(self._configured)


@contextmanager
def _errors_of(configured: ConfiguredModel) -> Iterator[None]:
    """Raise the errors of pydantic-ai, and of connections that come through it, as `ModelError`; keys are masked."""
    theirs = import_module(f"{_PACKAGE}.exceptions")
    try:
        yield
    except ModelError:
        raise
    except (theirs.AgentRunError, theirs.UserError) as error:
        raise _translated(error, theirs, configured) from None
    except NotImplementedError as error:
        raise BadRequest(f"{configured.model} cannot be asked: {error}") from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in OF_CONNECTIONS | {"botocore", "grpc", "ssl"}:
            raise
        raise Unreachable(masked(f"the connection to {place_of(configured)} broke: {error}", configured)) from None


def _translated(error: Any, theirs: Any, configured: ConfiguredModel) -> ModelError:
    names = {getattr(theirs, name): ours for name, ours in _ERRORS}
    kind = next((ours for their, ours in names.items() if isinstance(error, their)), InvalidAnswer)
    status, body = getattr(error, "status_code", None), getattr(error, "body", None)
    if isinstance(body, str):
        try:
            body = json.loads(body)
        except ValueError:
            body = None
    said = error_texts(body).get("message") or " ".join(str(error).split())
    text = masked(f"{place_of(configured)} says{'' if status is None else f' {status}'}: {said}", configured)
    wait_seconds = getattr(error, "retry_after", None)
    found = kind(f"{text}: {TOO_LONG}" if kind is ContextTooLong else text, retry_after_seconds=wait_seconds)
    found.status = status
    return found


def _usage(usage: Any) -> Usage | None:
    """The tokens that were reported; None where nothing was."""
    read, written, cached, kept = (
        count_of(getattr(usage, f"{key}_tokens")) or 0 for key in ("input", "output", "cache_read", "cache_write")
    )
    return Usage(read, written, cached, kept) if read or written else None


class _Taking:
    """Takes in the parts of an answer."""

    def __init__(self, ai: Any, written: StreamedAnswer, most: int) -> None:
        self._ai = ai
        self._written = written
        self._left = most
        """How many more letters may come, thoughts included."""
        self._calls: dict[str, int] = {}
        """The index of each call by its id."""

    def event(self, event: Any) -> str:
        """Take in an event, and return what it adds to the text that is passed on. Raises `InvalidAnswer`."""
        if isinstance(event, self._ai.PartStartEvent):
            return self.start(event.index, event.part)
        if not isinstance(event, self._ai.PartDeltaEvent):
            return ""
        delta = event.delta
        if isinstance(delta, self._ai.TextPartDelta):
            return self._written.add(delta.content_delta)
        if not isinstance(delta, self._ai.ToolCallPartDelta):
            self._bound(getattr(delta, "content_delta", None))
            return ""
        if delta.tool_name_delta or isinstance(delta.args_delta, dict):
            raise InvalidAnswer("the function calls cannot be put together: a call was changed after it had begun")
        return self._written.take_call(Piece(event.index, arguments=delta.args_delta or ""))

    def start(self, index: int, part: Any) -> str:
        """Take in the beginning of a part, or all of it; see `event`."""
        if isinstance(part, self._ai.ToolCallPart):
            self._calls[part.tool_call_id] = index
            is_whole = isinstance(part.args, dict)
            arguments = json.dumps(part.args) if is_whole else part.args or ""
            return self._written.take_call(
                Piece(index, part.tool_call_id, part.tool_name, arguments, is_whole=is_whole)
            )
        text = self._written.skip_call(index)
        if isinstance(part, self._ai.TextPart):
            return text + self._written.add(part.content)
        self._bound(getattr(part, "content", None))
        return text

    def finish(self, response: Any, *, has_endpoint: bool) -> None:
        """Take in how the answer has ended, and what its provider is to be given back. Raises `InvalidAnswer`."""
        written, details = self._written, response.provider_details or {}
        written.note_model(response.model_name)
        if response.state == "complete":
            said = "stop" if not has_endpoint or details.get("finish_reason") else None
            written.finish = response.finish_reason or said
        for index, part in enumerate(response.parts):
            own = _own(part)
            if isinstance(part, self._ai.ToolCallPart):
                if own and (at := self._calls.get(part.tool_call_id)) is not None:
                    written.take_call(Piece(at, own={_OWN: own}))
            elif isinstance(part, self._ai.ThinkingPart):
                written.keep_block(index, {"type": "thinking", **own})
            elif isinstance(part, self._ai.TextPart):
                written.keep_block(index, {"type": "text"})
                written.keep({_OWN: own} if own else {})
        if written.finish == "error":
            raise InvalidAnswer(f"the provider has ended the answer with an error: {details.get('finish_reason')}")

    def _bound(self, content: Any) -> None:
        self._left -= len(content) if isinstance(content, str) else 1
        if self._left < 0:
            raise InvalidAnswer("the model's server has sent more in one answer than is taken")


def _own(part: Any) -> dict[str, Any]:
    """The provider's own data in a part, besides its text or call."""
    keys = ("content", "signature", *_OF_PARTS) if hasattr(part, "signature") else _OF_PARTS
    own = {key: value for key in keys if (value := getattr(part, key, None)) not in (None, "", {})}
    plain: dict[str, Any] = import_module("pydantic_core").to_jsonable_python(own)
    return plain if own.keys() - {"provider_name"} else {}


def _parameters(ai: Any, sent: Fitted) -> Any:
    """The functions that a model may call, and the schema of its answer."""
    tools = [
        ai.ToolDefinition(
            name=each.name,
            description=each.description,
            parameters_json_schema=dict(each.parameters),
            strict=each.is_strict,
        )
        for each in sent.functions
    ]
    fields: dict[str, Any] = {"function_tools": tools}
    if sent.format is not None or sent.is_json:
        output = import_module(f"{_PACKAGE}.output").OutputObjectDefinition
        schema = {"type": "object"} if sent.format is None else sent.format
        fields |= {
            "output_mode": "prompted" if sent.format is None else "native",
            "output_object": output(json_schema=schema, name="answer", strict=sent.is_strict),
            "prompted_output_template": False,
        }
    return ai.models.ModelRequestParameters(**fields)


def messages_for(ai: Any, messages: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Chat messages as pydantic-ai's: what is not the model's, in a row, is one request. Raises `BadRequest`."""
    found, names = list[Any](), dict[Any, str]()
    for message in messages:
        if message.get("role") == "assistant":
            names |= {call["id"]: call["function"]["name"] for call in message.get("tool_calls") or ()}
            found.append(_response(ai, message))
            continue
        part = _request_part(ai, message, names)
        if found and isinstance(found[-1], ai.ModelRequest):
            found[-1].parts = [*found[-1].parts, part]
        else:
            found.append(ai.ModelRequest(parts=[part]))
    return found


def _request_part(ai: Any, message: Mapping[str, Any], names: Mapping[Any, str]) -> Any:
    role, content = message.get("role"), message.get("content")
    if role == "tool":
        id_ = message.get("tool_call_id")
        return ai.ToolReturnPart(tool_name=names.get(id_, ""), content="\n".join(texts_in(content)), tool_call_id=id_)
    if role == "system":
        return ai.SystemPromptPart(content="\n\n".join(texts_in(content)))
    if isinstance(content, str):
        return ai.UserPromptPart(content=content)
    return ai.UserPromptPart(content=[_user_content(ai, part) for part in content or ()])


def _response(ai: Any, message: Mapping[str, Any]) -> Any:
    """An answer of the model, with what its provider is given back in the places where it was."""
    own = message.get(_OWN) or {}
    parts = [*_thoughts(ai, message)]
    parts += [ai.TextPart(content=text, **own) for text in texts_in(message.get("content"))]
    for call in message.get("tool_calls") or ():
        function = call["function"]
        parts += _thoughts(ai, call)
        fields = call.get(_OWN) or {}
        parts.append(ai.ToolCallPart(function["name"], function["arguments"], tool_call_id=call["id"], **fields))
    return ai.ModelResponse(parts=parts)


def _thoughts(ai: Any, message: Mapping[str, Any]) -> Sequence[Any]:
    blocks = [{"content": "", **block} for block in message.get(THINKING, ())]
    return [ai.ThinkingPart(**{key: block[key] for key in block if key != "type"}) for block in blocks]


def _user_content(ai: Any, part: Any) -> Any:
    """A part of what a user says: a text, a picture or a document. Raises `BadRequest` for any other."""
    match part:
        case str(text) | {"type": "text", "text": str(text)}:
            return text
        case {"type": "file", "file": str(), "data": str(data)}:
            media_type, name = str(part.get("media_type")), str(part["file"])
        case {"type": "image_url", "image_url": {"url": str(url)} | str(url)} if url.startswith("data:"):
            media_type, data, name = *_of_data_url(url), ""
        case {"type": "file", "file": {"file_data": str(url), **more}} if url.startswith("data:"):
            media_type, data, name = *_of_data_url(url), str(more.get("filename", ""))
        case _:
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise BadRequest(f"a message has a part {kind!r} that pydantic-ai is not sent: give the file itself")
    try:
        content = base64.b64decode(data, validate=True)
        return content.decode() if media_type == TEXT else ai.BinaryContent(content, media_type=media_type)
    except (binascii.Error, UnicodeDecodeError) as error:
        raise BadRequest(f"the file {name!r} of the request cannot be read") from error


def _of_data_url(url: str) -> tuple[str, str]:
    head, _, data = url.removeprefix("data:").partition(",")
    return head.partition(";")[0], data
