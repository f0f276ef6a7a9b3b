"""Asking a model in a test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from acts_celery import Answer
from acts_celery.worker.registry.models import Model, ModelRequest, OnText, ignore

OUTPUT = {"type": "object", "properties": {"output": {}}, "required": ["output"]}


def request(*said: str, **parts: Any) -> ModelRequest:
    """A request of these messages."""
    return ModelRequest([{"role": "user", "content": text} for text in said], **parts)


def ask(model: Model, *said: str, on_text: OnText = ignore, **parts: Any) -> Answer:
    """The answer to these messages."""
    return asyncio.run(model.ask(request(*said, **parts), on_text))


async def on_thread(function: Callable[[], Any]) -> Any:
    """Run a plain function beside the loop."""
    return await asyncio.to_thread(function)
