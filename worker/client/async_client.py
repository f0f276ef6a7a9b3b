"""The client for asyncio programs: the same as `Client`, awaited.

Waiting for a run blocks on one connection of the event loop's, and holds no thread; everything else is short and
is done by the plain client in a thread. An order that has begun is carried out also when its coroutine is cancelled.
"""

from __future__ import annotations

import asyncio
from asyncio import to_thread
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from acts_celery.broker_config import Settings
from acts_celery.protocol import Plan
from acts_celery.protocol.analysis.provenance import Explanation
from acts_celery.worker.errors import RunNotFound
from acts_celery.worker.registry.activities import Registry
from acts_celery.worker.storage.connections import PASSING, connect_async_client, redis_errors
from acts_celery.worker.storage.entries import Entry, read_entry
from acts_celery.worker.storage.keys import ENDED, Keys

from .client import Client
from .labels import LabelOptions
from .progress import AT_ONCE, Deadline, Event, event_of, is_newest, read_stream
from .results import Result
from .runs import Run

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from .absence import Absence
    from .retrying import Retried


class AsyncClient:
    """Submits to the configured broker, and reads the log. Make it and use it in one event loop.

    Settings come from the environment unless given; the activities that they name are loaded.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        broker: str | None = None,
        redis: str | None = None,
        registry: Registry | None = None,
    ) -> None:
        self._client = Client(settings, broker=broker, redis=redis, registry=registry)
        self.settings = self._client.settings
        self._redis = connect_async_client(self.settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()
        await to_thread(self._client.close)

    async def submit(
        self,
        context: Iterable[Mapping[str, Any]] = (),
        solution: Mapping[str, Any] | None = None,
        *,
        tools: Mapping[str, Any] | None = None,
        delegates: Mapping[str, Any] | None = None,
        allow: Iterable[str] | None = None,
        **label: Unpack[LabelOptions],
    ) -> AsyncRun:
        """As `Client.submit`. Raises `protocol.Rejected`, `InfrastructureError`."""
        submit = self._client.submit
        run = await to_thread(submit, context, solution, tools=tools, delegates=delegates, allow=allow, **label)
        return self._run_of(run)

    async def submit_document(self, value: Any, *, allow: Iterable[str] | None = None) -> AsyncRun:
        """Submit a whole submission as it stands in a file. Raises `protocol.Rejected`, `InfrastructureError`."""
        return self._run_of(await to_thread(self._client.submit_document, value, allow=allow))

    async def check(self, value: Any, *, allow: Iterable[str] | None = None) -> Plan:
        """Check a whole submission against what is registered here; needs no server. Raises `protocol.Rejected`."""
        return await to_thread(self._client.check, value, allow=allow)

    async def run(self, run: str) -> AsyncRun:
        """A run by its id. Raises `RunNotFound`, `InfrastructureError`."""
        return self._run_of(await to_thread(self._client.run, run))

    async def find(self, text: str) -> AsyncRun:
        """A run by its id, the beginning of it, its name, or `latest`. Raises as `Client.find` does."""
        return self._run_of(await to_thread(self._client.find, text))

    def _run_of(self, run: Run) -> AsyncRun:
        return AsyncRun(run, self._redis, self.settings)


class AsyncRun:
    """A submission under way or ended. Get one from `AsyncClient.submit` or `AsyncClient.run`."""

    def __init__(self, run: Run, redis: Redis, settings: Settings) -> None:
        self.id = run.id
        self._run = run
        self._redis = redis
        self._settings = settings
        self._keys = Keys(settings.key_prefix, run.id)

    async def wait(self, timeout_seconds: float | None = None) -> Result:
        """Wait until the run has ended. Raises `TimeoutError`; the run goes on then."""
        async for _ in self._entries(self._keys.statuses, timeout_seconds):
            pass
        return await self.result()

    async def follow(self, *, timeout_seconds: float | None = None) -> AsyncIterator[Event]:
        """Every event from the beginning, as it happens, until the run has ended. Raises `TimeoutError`."""
        async for entry in self._entries(self._keys.log, timeout_seconds):
            if (event := event_of(entry)) is not None:
                yield event

    async def result(self, at: str | None = None, *, waits: bool = False) -> Result:
        """What the run has come to, now or as of a past id. As `Run.result`."""
        return await to_thread(self._run.result, at, waits=waits)

    async def status(self, at: str | None = None) -> dict[str, Any]:
        """The run's status and its calls counted by theirs: `acts status --json`."""
        return await to_thread(self._run.status, at)

    async def pause(self) -> None:
        """Begin no more calls; those at work end, and their outcomes are taken. Raises `RunOver`."""
        await to_thread(self._run.pause)

    async def resume(self, *, ticks: int | None = None) -> None:
        """Go on where the run was paused, with `ticks` also with a loop that has reached a limit.

        Raises `RunOver`, `NoLoop`.
        """
        await to_thread(self._run.resume, ticks=ticks)

    async def say(self, text: str) -> None:
        """Add a text to the context of a loop; one that has ended goes on. Raises `NoLoop`, `RunOver`."""
        await to_thread(self._run.say, text)

    async def asked(self, tick: int) -> dict[str, Any]:
        """What the model was asked in a tick of a loop. Raises `NoLoop`, `NoSuchTick`."""
        return await to_thread(self._run.asked, tick)

    async def cancel(self) -> None:
        """End the run as it stands: nothing that ends later is taken. Raises `RunOver`."""
        await to_thread(self._run.cancel)

    async def fork(self, at: str | None = None, *, paused: bool = False) -> AsyncRun:
        """A new run that goes on from where this one was at an id, or is now. Raises `RunNotFound`."""
        return AsyncRun(await to_thread(self._run.fork, at, paused=paused), self._redis, self._settings)

    async def amend(self, amendment: Mapping[str, Any] | Sequence[Mapping[str, Any]], *, add: bool = False) -> None:
        """Put other calls in place of those that have not begun, or `add` them. Raises as `Run.amend` does."""
        await to_thread(self._run.amend, amendment, add=add)

    async def retry(
        self, *, call: int | None = None, instance: str | None = None, skip: bool = False, value: Any = None
    ) -> Retried:
        """Do failed calls again, in this run, or let them count as done. Raises as `Run.retry` does."""
        return await to_thread(self._run.retry, call=call, instance=instance, skip=skip, value=value)

    async def delete(self) -> None:
        """Forget a run that has ended. Raises `RunNotFound`, `RunOver` where it has not."""
        await to_thread(self._run.delete)

    async def send(self, messages: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        """Add data messages to a run under way; returns their ids. Raises as `Run.send` does."""
        return await to_thread(self._run.send, messages)

    async def held(self) -> list[dict[str, Any]]:
        """The calls that wait for a person: what `acts held --json` prints."""
        return await to_thread(self._run.held)

    async def approve(
        self,
        call: str | int,
        *,
        parameters: Mapping[str, Any] | None = None,
        calls: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        by: str | None = None,
        shown: str | None = None,
    ) -> str:
        """Let a held call run, as shown, with other parameters, or other calls in its place. As `Run.approve`."""
        return await to_thread(self._run.approve, call, parameters=parameters, calls=calls, by=by, shown=shown)

    async def answer(self, call: str | int, value: Any, *, by: str | None = None, shown: str | None = None) -> str:
        """Answer a question: the value is the call's result. As `Run.answer`."""
        return await to_thread(self._run.answer, call, value, by=by, shown=shown)

    async def reject(self, call: str | int, reason: str, *, by: str | None = None, shown: str | None = None) -> str:
        """Have a held call end with the error `Rejected`. As `Run.reject`."""
        return await to_thread(self._run.reject, call, reason, by=by, shown=shown)

    async def explain(self, path: str, *, instance: str | None = None, at: str | None = None) -> Explanation:
        """Which messages a value came from. Raises as `Run.explain` does."""
        return await to_thread(self._run.explain, path, instance=instance, at=at)

    async def explain_absence(self, path: str, *, instance: str | None = None, at: str | None = None) -> Absence:
        """Why there is no value. Raises as `Run.explain` does."""
        return await to_thread(self._run.explain_absence, path, instance=instance, at=at)

    async def _entries(self, stream: str, timeout_seconds: float | None) -> AsyncIterator[Entry]:
        """The entries of a stream of the run, as they come, until the run has ended. Raises `TimeoutError`."""
        await to_thread(self._run.require)
        deadline, seen = Deadline(self.id, timeout_seconds), "0-0"
        is_over = (await self._newest()).run_status in ENDED
        while True:
            found = await self._next(stream, seen, deadline, blocks=not is_over)
            for entry in found:
                yield entry
                if entry.run_status in ENDED and (is_newest(entry, found) or entry.id == (await self._newest()).id):
                    return
            if found:
                seen = found[-1].id
            elif is_over or (await self._newest()).run_status in ENDED:
                return

    async def _next(self, stream: str, seen: str, deadline: Deadline, *, blocks: bool) -> list[Entry]:
        """As `Progress` waits."""
        pauses = deadline.pauses()
        with redis_errors(self._settings):
            while True:
                block = deadline.block_ms() if blocks else None
                try:
                    return read_stream(await self._redis.xread({stream: seen}, block=block, count=AT_ONCE))
                except PASSING:
                    pause = next(pauses, None)
                    if pause is None:
                        raise
                    await asyncio.sleep(pause)

    async def _newest(self) -> Entry:
        """The last change of the run's status. Raises `RunNotFound` where the run is kept no longer."""
        with redis_errors(self._settings):
            found: Any = await self._redis.xrevrange(self._keys.statuses, count=1)
        if not found:
            raise RunNotFound(self.id)
        return read_entry(*found[0])
