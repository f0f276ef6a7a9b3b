"""Files beside a run's log, by their digests, and the messages that show them (see `protocol.language.files`).

A request in the log names its files; what is published has them, so whoever asks the model needs no log.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from redis.asyncio import Redis

from acts_celery.broker_config import Settings
from acts_celery.protocol.language.files import file_parts, is_file, picture_type, with_changed

from .grouping import GroupedCommands
from .keys import Keys
from .scripts import AsyncScript


class FileGone(Exception):
    """A file that a request shows is not there any more."""


def filled(messages: Iterable[Mapping[str, Any]], contents: Mapping[str, bytes]) -> list[Mapping[str, Any]]:
    """Messages with their files in base64. Raises `FileGone`."""
    found = [*messages]
    for part in file_parts(found):
        if part.get("digest") not in contents:
            raise FileGone(f"the file {part['file']!r} is not there: its run has none of that digest")

    def with_data(part: Any) -> Any:
        return {**part, "data": base64.b64encode(contents[part["digest"]]).decode()} if is_file(part) else part

    return [with_changed(message, with_data) for message in found]


class PictureKeeper:
    """Keeps the pictures that tools answer beside the logs of their runs, for the tasks of one event loop."""

    def __init__(self, redis: Redis, settings: Settings) -> None:
        self._script = AsyncScript(GroupedCommands(redis), "keep_picture")
        self._settings = settings

    async def keep(self, run: str, content: bytes) -> str:
        """Keep a picture; returns why it is not kept, or nothing. Raises `RedisError`."""
        settings = self._settings
        if picture_type(content) is None:
            return "it is no PNG, JPEG, GIF or WebP"
        if len(content) > (most := int(settings.limit_file_bytes)):
            return f"it has {len(content)} bytes, where {most} are allowed (ACTS_LIMIT_FILE_BYTES)"
        most = int(settings.limit_run_bytes) // 2  # the rest is for its log: what is full fails
        request = {"digest": hashlib.sha256(content).hexdigest(), "content": content, "most_bytes": most}
        answer = await self._script(Keys(settings.key_prefix, run), request)
        return {"kept": "", "full": f"its run would have more than {most} bytes (half of ACTS_LIMIT_RUN_BYTES)"}.get(
            answer["answer"], "the run is over"
        )
