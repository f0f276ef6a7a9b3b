"""The requests of a loop: what the next tick asks, made from the log alone (SPEC R12.5, R13.3, R13.5)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from acts_celery.broker_config import ConfiguredModel
from acts_celery.protocol.engine.loop_events import Asked
from acts_celery.protocol.engine.loop_limits import LoopLimits
from acts_celery.protocol.language.files import digests, sent_bytes
from acts_celery.protocol.requests import Request, render, render_tick
from acts_celery.protocol.requests.data_blocks import shown_pictures
from acts_celery.protocol.requests.functions import REQUIRED, TOOLS, first_schema
from acts_celery.protocol.requests.rendering import render_added, render_functions, render_said
from acts_celery.protocol.requests.tool_messages import Turn
from acts_celery.protocol.state.allowance import TooLarge
from acts_celery.protocol.submission.config import SAMPLING
from acts_celery.worker.lanes.checking import Checker
from acts_celery.worker.models.content_parts import picture_message
from acts_celery.worker.models.image_tokens import request_tokens
from acts_celery.worker.models.known import KnownModels
from acts_celery.worker.models.prices import estimate_of
from acts_celery.worker.wire.packing import pack

from .loop_view import LoopView
from .repeats import repeats_of
from .ticks import fates_of

_SENT = ("model", *SAMPLING, "request_seconds")
"""The settings that are a model's own."""


class PicturesUnknown(Exception):
    """The request shows pictures of tools, by these digests, of which its view knows nothing yet."""

    def __init__(self, digests: Sequence[str]) -> None:
        super().__init__()
        self.digests = digests


def request_of(view: LoopView, checker: Checker) -> Request:
    """The request that a loop asks again and again; read once for a view. Raises `protocol.Rejected`."""
    if view.asks is None:
        config = view.definition.config
        whole = {
            "context": view.context,
            **view.request,
            "delegates": view.definition.delegates,
            "config": config,
        }
        approved, operator = config.get("approve", ()), view.definition.submitted_with
        allow = view.definition.allow
        request = checker.request(whole, allow=allow, approved=approved, operator=operator, wire=view.wire)
        view.asks = replace(request, is_child=view.parent is not None)
    return view.asks


def next_request(view: LoopView, request: Request, models: KnownModels) -> Asked:
    """What the log gets of the next request: the messages that it adds to those of the one before, so that it begins
    with them byte for byte, and the schema where it is another one. Raises `Rejected` where the first one is too large,
    `TooLarge` for another, and `PicturesUnknown`.
    """
    config, most_bytes = config_of(view, request), request.known.limits.call_bytes
    repeats = repeats_of(view)
    added = _added(view, request, repeats)
    if models.see_pictures(config.get("model")):
        added += _pictures(view, request, most_bytes // 2)
    schema = view.schema if view.schema is not None else first_schema(request)
    messages = [*view.asked, *added]
    beside = sum(map(len, view.provider_data.values()))
    size = len(pack(messages)) + len(pack(schema)) + beside
    if (sent := size + sent_bytes(messages)) > most_bytes:
        raise TooLarge(f"the request would have {sent} bytes, where {most_bytes} may be sent (ACTS_LIMIT_CALL_BYTES)")
    most = view.limits.max_output_tokens
    asked = models.asked(config.get("model"))
    tokens = _estimate(view, added, schema, asked)
    estimate = estimate_of(asked if view.limits.money is not None else (), tokens, most)
    return Asked(
        messages=added,
        config=config,
        estimate=estimate.tokens,
        nanodollars=estimate.nanodollars,
        digest=hashlib.sha256(pack([messages, schema, config])).hexdigest(),
        schema=schema if schema != view.schema else None,
        repeats=repeats,
    )


def _pictures(view: LoopView, request: Request, most_bytes: int) -> list[dict[str, Any]]:
    """The message that shows the pictures of tools among what the next request shows and the ones before have not; all
    files of the requests have so many bytes. Raises `PicturesUnknown`.
    """
    shown = list(shown_pictures(view.messages[view.rendered :], request.budget(view.messages)))
    if not shown:
        return []
    if unknown := [digest for _, digest in shown if digest not in view.pictures]:
        raise PicturesUnknown(unknown)
    before = set(digests(view.asked))
    new = [(place, digest) for place, digest in shown if digest not in before]
    message = picture_message(new, view.pictures, most_bytes - sent_bytes(view.asked))
    return [message] if message is not None else []


def _estimate(view: LoopView, added: Sequence[Mapping[str, Any]], schema: Any, asked: Sequence[ConfiguredModel]) -> int:
    """The tokens that the next request may have (SPEC R13.3). Where those of the request before are known, and of its
    answer, which is the first of the `added` messages, only what is new counts by its bytes.
    """
    known = view.loop.known
    if known is None:
        return request_tokens([*view.asked, *added], asked) + len(pack(schema))
    is_answer = [place == 0 and message.get("role") == "assistant" for place, message in enumerate(added)]
    new = [dict.fromkeys(each) if is_ else each for each, is_ in zip(added, is_answer, strict=True)]
    return known + request_tokens(new, asked) + (len(pack(schema)) if schema != view.schema else 0)


def config_of(view: LoopView, request: Request) -> dict[str, Any]:
    """The settings that a loop's model is sent."""
    return sent_config(request, view.definition.config, view.limits)


def sent_config(request: Request, config: Mapping[str, Any], limits: LoopLimits) -> dict[str, Any]:
    """The settings that a model is sent by a loop's `config`, and how the request is put; the most tokens of an answer
    always are.
    """
    own = {key: config[key] for key in _SENT if key in config}
    put = {"wire": TOOLS, "tool_choice": "auto" if request.may_say else REQUIRED} if request.is_native else {}
    return {**own, "max_output_tokens": limits.max_output_tokens, **put}


def _added(view: LoopView, request: Request, repeats: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    tick = view.loop.last
    if tick is None:
        first = render(request)
        return [*first, *render_added(request, view.messages[len(view.context) :])]
    assert tick.solution is not None
    before, new = view.messages[: view.rendered], view.messages[view.rendered :]
    answer = tick.solution["solution"]
    times = repeats["times"] if repeats is not None else 1
    if request.is_native:
        turn = Turn(tick.number, answer, tick.first, tick.solution.get("words", ""), tick.set_aside, times)
        return [*render_functions(request, turn, fates_of(view), before, new), *render_said(new)]
    return [*render_tick(request, tick.number, answer, fates_of(view), before, new, times), *render_said(new)]
