"""Recording a model: its answers are kept in a file by what was asked, and given again for the same request.

A line of the file is an entry of a script: `asked` is the digest of the request's messages, schema and settings,
`request` is what that was, and `answer`, `model` and `usage`, or `error`, are what came. The file is one for
`ACTS_MODEL=scripted:FILE`, which asks nobody. Keys do not get into it.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from pathlib import Path
from typing import Any

from acts_celery.broker_config import ConfiguredModel
from acts_celery.protocol.language.visible import json_text
from acts_celery.worker.errors import WorkerError

from .errors import InvalidAnswer, ModelError, Refused, Truncated
from .http_client import without_key
from .request import Answer, Listing, Loading, Model, ModelRequest, OnText
from .script_entries import entry_of
from .scripted import NoAnswer, ScriptedModel


class RecordedModel:
    """A model whose answers are kept in a file: what is there is given again, and all else is asked and added."""

    def __init__(self, model: Model, configured: ConfiguredModel, path: Path) -> None:
        """Raises `WorkerError` where the file cannot be read, or written."""
        self.model = model
        self._configured = configured
        self._path = path
        try:
            path.touch()
        except OSError as error:
            raise WorkerError(f"model {configured.model}: its recording {path}: {error.strerror}") from error
        self._script = ScriptedModel.load(path)

    async def ask(self, request: ModelRequest, on_text: OnText) -> Answer:
        """The answer that was recorded, else the model's own. Raises `ModelError`.

        What may pass is not recorded; an answer that is refused or cut off is, as it has to be paid for.
        """
        try:
            return await self._script.ask(request, on_text)
        except NoAnswer:
            pass
        try:
            answer = await self.model.ask(request, on_text)
        except (Refused, Truncated, InvalidAnswer) as error:
            await self._add(request, error)
            raise
        await self._add(request, answer)
        return answer

    async def prepare(self) -> None:
        """Have the model load what it takes to ask it."""
        if isinstance(self.model, Loading):
            await self.model.prepare()

    async def names(self, seconds: float) -> list[str]:
        """As the model has it."""
        return await self.model.names(seconds) if isinstance(self.model, Listing) else []

    async def close(self) -> None:
        """Close its connections."""
        if isinstance(self.model, Listing):
            await self.model.close()

    async def _add(self, request: ModelRequest, answered: Answer | ModelError) -> None:
        entry: dict[str, Any] = entry_of(request, answered)
        self._script.entries.append(entry)
        await asyncio.to_thread(self._write, without_key(json_text(entry), self._configured) + "\n")

    def _write(self, line: str) -> None:
        # It holds prompts: a new one is its owner's alone to read.
        number = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(number, "a", encoding="utf-8", errors="backslashreplace") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)  # other processes of the worker write to it, too
            file.write(line)
