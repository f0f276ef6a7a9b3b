"""The client for asyncio programs: `Client` with its methods awaited.

Waiting for a run blocks on one connection of the event loop, and holds no thread; everything else is short, and the
plain client does it in a thread. An order that has begun is finished even if its coroutine is cancelled.
"""

from __future__ import annotations

import inspect
from asyncio import to_thread
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from functools import partial, wraps
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, Unpack, overload

from ...broker_config import Settings
from .. import limits
from ..registry.activities import Registry
from ..runner.checking import Checker
from ..store.connections import connect_async_client, redis_errors
from ..store.waiting import DeadLetters
from .call_results import LogEntry
from .client import Client
from .progress import Arrivals, Deadline, Event
from .results import Result, completed, require_now
from .run import Run
from .submitting import OtherOptions, OutputT, SubmissionOptions, Submitted, with_named_options

if TYPE_CHECKING:
    from redis.asyncio import Redis


# The methods of the asyncio classes, made from the plain ones: each runs in a thread.

S = TypeVar("S", covariant=True)
U = TypeVar("U")
P = ParamSpec("P")


class Twin(Generic[S]):
    """The asyncio counterpart of a plain object."""

    def __init__(self, plain: S) -> None:
        self._plain = plain

    @property
    def plain(self) -> S:
        """The plain object, whose methods block."""
        return self._plain


def awaited(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[Twin[S], P], Coroutine[Any, Any, T]]:
    """Make a method that runs this one in a thread, and is awaited."""

    @wraps(method)
    async def twin(self: Twin[S], /, *args: P.args, **named: P.kwargs) -> T:
        return await to_thread(method, self._plain, *args, **named)

    return twin


def iterated(method: Callable[Concatenate[S, P], Iterator[T]]) -> Callable[Concatenate[Twin[S], P], AsyncIterator[T]]:
    """Make an asynchronous generator of a method that gives an iterator."""

    @wraps(method)
    async def twin(self: Twin[S], /, *args: P.args, **named: P.kwargs) -> AsyncIterator[T]:
        async for value in in_threads(await to_thread(method, self._plain, *args, **named)):
            yield value

    return _returning(twin, "Async" + inspect.signature(method).return_annotation)


def converted(
    method: Callable[Concatenate[S, P], T], convert: Callable[[Any, T], U]
) -> Callable[Concatenate[Twin[S], P], Coroutine[Any, Any, U]]:
    """Make a method that is awaited, and returns `convert(twin, result)`: the asyncio counterpart of a result."""

    @wraps(method)
    async def twin(self: Twin[S], /, *args: P.args, **named: P.kwargs) -> U:
        return convert(self, await to_thread(method, self._plain, *args, **named))

    return _returning(twin, inspect.signature(convert).return_annotation)


async def in_threads(values: Iterator[T]) -> AsyncIterator[T]:
    """Iterate in threads over values that block."""
    while some := await to_thread(list, islice(values, limits.ASYNC_CLIENT_AT_ONCE)):
        for value in some:
            yield value


def _returning(twin: Callable[P, T], annotation: str) -> Callable[P, T]:
    """Give a method another return annotation in its signature."""
    shown = inspect.signature(twin).replace(return_annotation=annotation)
    twin.__signature__ = shown  # type: ignore[attr-defined]  # asked for by `inspect`
    return twin


T = TypeVar("T")


def _async_run(twin: AsyncClient | AsyncRun, run: Run) -> AsyncRun:
    return twin.run_of(run)


class AsyncDeadLetters(Twin[DeadLetters]):
    """The fire-and-forget calls that failed for good: the methods of `DeadLetters`, awaited."""

    list = awaited(DeadLetters.list)
    count = awaited(DeadLetters.count)
    get = awaited(DeadLetters.get)
    resend = awaited(DeadLetters.resend)
    drop = awaited(DeadLetters.drop)


@with_named_options
class AsyncClient(Twin[Client]):
    """Submits to the configured broker, and reads the log. Make it and use it in one event loop.

    Settings, activities and contracts are those of `Client`.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        broker: str | None = None,
        redis: str | None = None,
        registry: Registry | None = None,
        contracts: str | PathLike[str] | None = None,
    ) -> None:
        super().__init__(Client(settings, broker=broker, redis=redis, registry=registry, contracts=contracts))
        self.settings = self._plain.settings
        self._redis = connect_async_client(self.settings)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()
        await to_thread(self._plain.close)

    @overload
    async def submit(
        self,
        context: Submitted = (),
        solution: Mapping[str, Any] | None = None,
        *,
        schema: type[T],
        **options: Unpack[OtherOptions],
    ) -> AsyncRun[T]: ...

    @overload
    async def submit(
        self, context: Submitted = (), solution: Mapping[str, Any] | None = None, **options: Unpack[SubmissionOptions]
    ) -> AsyncRun: ...

    async def submit(
        self, context: Submitted = (), solution: Mapping[str, Any] | None = None, **options: Unpack[SubmissionOptions]
    ) -> AsyncRun:
        """Submit like `Client.submit`."""
        return self.run_of(await to_thread(partial(self._plain.submit, context, solution, **options)))

    @overload
    async def submit_document(self, value: Any, *, schema: type[T], **options: Unpack[OtherOptions]) -> AsyncRun[T]: ...

    @overload
    async def submit_document(self, value: Any, **options: Unpack[SubmissionOptions]) -> AsyncRun: ...

    async def submit_document(self, value: Any, **options: Unpack[SubmissionOptions]) -> AsyncRun:
        """Submit like `Client.submit_document`."""
        return self.run_of(await to_thread(partial(self._plain.submit_document, value, **options)))

    submit_plan = converted(Client.submit_plan, _async_run)
    check_submission = awaited(Client.check_submission)
    state_of = awaited(Client.state_of)
    check = awaited(Client.check)
    run = converted(Client.run, _async_run)
    find = converted(Client.find, _async_run)
    runs = iterated(Client.runs)
    deletable_runs = awaited(Client.deletable_runs)
    delete_runs = iterated(Client.delete_runs)
    erasable_runs = awaited(Client.erasable_runs)
    erase_instances = iterated(Client.erase_instances)
    export_rows = iterated(Client.export_rows)
    import_run = converted(Client.import_run, _async_run)

    def run_of(self, run: str | Run) -> AsyncRun:
        """A run, without looking whether it is there."""
        return AsyncRun(run if isinstance(run, Run) else self._plain.run_of(run), self._redis, self.settings)

    def dead_letters(self) -> AsyncDeadLetters:
        """The fire-and-forget calls that failed for good (SPEC R5.3)."""
        return AsyncDeadLetters(self._plain.dead_letters())

    @property
    def checker(self) -> Checker:
        """Checks submissions (see `Client`)."""
        return self._plain.checker


@with_named_options
class AsyncRun(Twin[Run[OutputT]], Generic[OutputT]):
    """A submission under way or ended. Get one from `AsyncClient.submit` or `AsyncClient.run`."""

    def __init__(self, run: Run[OutputT], redis: Redis, settings: Settings) -> None:
        super().__init__(run)
        self.id = run.id
        self._redis = redis
        self._settings = settings
        self._arrivals = Arrivals(run.id, redis, settings)

    def __repr__(self) -> str:
        return f"<AsyncRun {self.id}>"

    async def wait(self, timeout_seconds: float | None = None) -> Result[OutputT]:
        """Wait until the run has ended, well or not, and read its result, like `Run.wait`. Raises `RunTimeout`."""
        await self.ended(timeout_seconds)
        return await self.result()

    async def ended(self, timeout_seconds: float | None = None) -> None:
        """Wait until the run has ended, and do not read its result. Raises `RunTimeout`."""
        await to_thread(self._plain.require)
        async for _ in self._arrivals.end(Deadline(self.id, timeout_seconds)):
            pass

    async def result(
        self, at: str | None = None, *, waits: bool = False, timeout_seconds: float | None = None
    ) -> Result[OutputT]:
        """The result of a run that has completed: with `timeout_seconds` it waits, and raises `RunFailed`,
        `RunTimeout`; without, it gives what there is now. See `Run.result`.
        """
        if timeout_seconds is not None:
            require_now(at, waits=waits)
            return completed(await self.wait(timeout_seconds))
        return await to_thread(self._plain.result, at, waits=waits)

    async def follow(
        self, *, after: str = "0-0", children: bool = False, timeout_seconds: float | None = None
    ) -> AsyncIterator[Event]:
        """Follow the run: every event from the beginning, or behind the one of an id, as it happens, until the run has
        ended; with `children` also those of child runs that begin behind it, which have their `run`. Raises
        `RunTimeout`, `ValueError` for what is no id.
        """
        await to_thread(self._plain.require)
        deadline = Deadline(self.id, timeout_seconds)
        reader = self._plain.events(after)
        async for run, entry in self._arrivals.entries(after, deadline, has_children=children):
            if reader.needs(run):
                await to_thread(reader.prepare, run)
            if (event := reader.read(entry, run)) is not None:
                yield event if reader.is_complete(event) else await to_thread(reader.complete, event)

    async def log(
        self,
        *,
        instance: str | None = None,
        follow: bool = False,
        audit: bool = False,
        every: bool = False,
        ticks: bool = False,
    ) -> AsyncIterator[LogEntry]:
        """Yield the messages in order, like `Run.log`. Raises `InstanceNotFound`."""
        reading = await to_thread(self._plain.reading, instance, audit=audit, every=every, ticks=ticks)
        with redis_errors(self._settings):
            async for shown in in_threads(reading.past()):
                yield shown
        if follow:
            async for _, entry in self._arrivals.entries(reading.seen, Deadline(self.id, None)):
                for shown in reading.shown(entry):
                    yield shown

    status = awaited(Run.status)
    pause = awaited(Run.pause)
    resume = awaited(Run.resume)
    cancel = awaited(Run.cancel)
    say = awaited(Run.say)
    asked = awaited(Run.asked)
    send = awaited(Run.send)
    held = awaited(Run.held)
    questions = awaited(Run.questions)
    question = awaited(Run.question)
    approve = awaited(Run.approve)
    answer = awaited(Run.answer)
    approve_together = awaited(Run.approve_together)
    reject = awaited(Run.reject)
    reject_together = awaited(Run.reject_together)
    rules = awaited(Run.rules)
    revoke_rule = awaited(Run.revoke_rule)
    settle = awaited(Run.settle)
    move = awaited(Run.move)
    plan = awaited(Run.plan)
    approve_plan = awaited(Run.approve_plan)
    fork = converted(Run.fork, _async_run)
    amend = awaited(Run.amend)
    retry = awaited(Run.retry)
    would_retry = awaited(Run.would_retry)
    export = iterated(Run.export)
    export_plan = awaited(Run.export_plan)
    script = awaited(Run.script)
    delete = awaited(Run.delete)
    delete_instances = awaited(Run.delete_instances)
    explain = awaited(Run.explain)
    explain_absence = awaited(Run.explain_absence)
    require = awaited(Run.require)

    def child(self, run: str) -> AsyncRun:
        """A child run, by the id that its call names (SPEC R9.3)."""
        return self.run_of(self._plain.child(run))

    def run_of(self, run: Run) -> AsyncRun:
        """Another run, read in the same event loop."""
        return AsyncRun(run, self._redis, self._settings)

    @property
    def total(self) -> Awaitable[int]:
        """How many calls the run has, over all instances: `await run.total`."""
        return to_thread(lambda: self._plain.total)
