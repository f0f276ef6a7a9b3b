"""Sending on an answer while it is written: its text, each time that more calls of it are complete, or that more has
come of an output that is a text (SPEC R13.8, R13.12), and what the provider reports of its usage (SPEC R13.3).

One part is under way at a time, and the next one holds all that has come meanwhile; a slow broker makes them fewer.
Each has the whole text so far: it may come twice, late or not at all. The log keeps each, so of a long answer not every
call makes a part: from the eighth on, each part has a quarter more calls than the one before. Of an output ten parts
are made in a second at most, and each has a thirty-second more of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from acts_celery.protocol.requests.answer_texts import Unreadable
from acts_celery.protocol.requests.growing import GrowingAnswer
from acts_celery.worker.errors import WorkerError

from .request import OnText, Reported, Words

logger: Final = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 0.1
_SHARE: Final = 32
_BEGIN: Final = '{"'
"""What words begin with, and only there, since each quote in them is escaped."""

SendPart = Callable[[str, Reported | None], Awaitable[None]]
"""Sends the text so far, and what was reported."""


class PartialAnswers:
    """Sends parts as long as it is entered; `send` is called on the event loop. Where nobody wants the text, they have
    only what is reported.
    """

    def __init__(self, send: SendPart, *, tells_text: bool = True) -> None:
        self._send = send
        self._tells_text = tells_text
        self._reported: Reported | None = None
        """What was reported last: each part has it, since one may be lost."""
        self._is_sent = True
        """Whether a part had it."""
        self._growing = GrowingAnswer()
        self._calls = 0
        self._next = 1
        """With how many calls the next part is sent."""
        self._next_written = 1
        """With how many bytes of an output the next part is sent."""
        self._output = ""
        """What of the output was sent."""
        self._has_words = False
        """Whether what has come are words beside calls."""
        self._working: asyncio.Task[None] | None = None
        self._is_over = False

    def __enter__(self) -> OnText:
        return self._take

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        if self._working is not None:
            self._working.cancel()

    def _take(self, piece: str | Reported) -> None:
        """Take in a piece of the answer."""
        if self._is_over:
            return
        if isinstance(piece, Reported):
            self._reported, self._is_sent = piece, False
        elif self._tells_text:
            self._read(piece)
        if self._is_due and self._working is None:
            self._working = asyncio.get_running_loop().create_task(self._work())

    def _read(self, piece: str) -> None:
        """Read on."""
        has_words, self._has_words = self._has_words, isinstance(piece, Words)
        if has_words and (not self._has_words or piece.startswith(_BEGIN)):  # it goes on otherwise, or was asked again
            self._growing, self._next_written, self._output = GrowingAnswer(), 1, ""
        try:
            self._calls += len(self._growing.feed(piece))
        except Unreadable:  # what is wrong is said where the whole answer is read
            self._is_over = True

    @property
    def _is_due(self) -> bool:
        return not self._is_sent or self._calls >= self._next or self._growing.written >= self._next_written

    async def _work(self) -> None:
        try:
            while self._is_due:
                growing = self._growing
                has_calls = self._calls >= self._next
                if has_calls:
                    self._next = self._calls + max(1, self._calls // 4)
                self._next_written = growing.written + max(1, growing.written // _SHARE)
                output, before = growing.output, self._output
                is_sent, self._is_sent = self._is_sent, True
                if len(output) > len(before):
                    self._output = output
                    await self._send(growing.text, self._reported)
                    await asyncio.sleep(_PAUSE_SECONDS)
                elif has_calls:
                    await self._send(growing.text_of_calls, self._reported)
                elif not is_sent:
                    await self._send("", self._reported)
        except WorkerError as error:
            logger.warning("what comes of an answer waits for its end: %s", error)
            self._is_over = True
        finally:
            self._working = None
