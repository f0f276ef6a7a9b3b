"""The client: check, submit, and find runs again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from broker_config import Settings, load
from protocol import Plan, Problem, Rejected, check_amendment, check_in
from protocol.calls.call import place_in
from protocol.calls.tools import Executor
from protocol.language.errors import pointer
from protocol.submission.amendments import SoFar, placed
from protocol.submission.checking import Surroundings
from protocol.submission.support import unsupported
from worker.messaging.limits import limits_of
from worker.registry.activities import Registry
from worker.registry.activities import registry as default_registry
from worker.registry.loading import load_activities
from worker.registry.request_definitions import KnownDelegates
from worker.storage.connections import connect, redis_errors
from worker.storage.dead_letters import DeadLetters

from .runs import Run

if TYPE_CHECKING:
    from redis import Redis

    from worker.messaging.publisher import Publisher

    from .dispatcher import Dispatcher


class Client:
    """Submits to the configured broker, and reads the log.

    Settings come from the environment unless given; the activities that they name are loaded. Others must be registered
    before a submission that uses them is checked: import their modules.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        broker: str | None = None,
        redis: str | None = None,
        registry: Registry | None = None,
    ) -> None:
        given = {"broker_url": broker, "redis_url": redis}
        self.settings = settings or load(**{key: url for key, url in given.items() if url is not None})
        if registry is None:
            load_activities(self.settings)
        self._registry = registry or default_registry

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        if "_redis" in self.__dict__:
            self._redis.close()

    def submit(
        self,
        context: Iterable[Mapping[str, Any]] = (),
        solution: Mapping[str, Any] | None = None,
        *,
        tools: Mapping[str, Any] | None = None,
        delegates: Mapping[str, Any] | None = None,
        allow: Iterable[str] | None = None,
    ) -> Run:
        """Submit a solution, or the plan messages of the context. With `allow` only the tools, activities and delegates
        that it names may be called, now and by amendments (SPEC R4.2a). Raises `protocol.Rejected`,
        `InfrastructureError`.
        """
        parts = {"solution": solution, "tools": tools, "delegates": delegates}
        value = {"context": [dict(message) for message in context]}
        whole = {**value, **{key: part for key, part in parts.items() if part is not None}}
        return self.submit_document(whole, allow=allow)

    def submit_document(self, value: Any, *, allow: Iterable[str] | None = None) -> Run:
        """Submit a whole submission as it stands in a file. Raises `protocol.Rejected`, `InfrastructureError`."""
        plan = self._supported(self.check(value, allow=allow))
        with redis_errors(self.settings):
            return self.run_of(self._dispatcher.submit(plan))

    def check(self, value: Any, *, allow: Iterable[str] | None = None) -> Plan:
        """Check a whole submission against what is registered here; needs no server. Raises `protocol.Rejected`."""
        known = replace(self._surroundings, allow=None if allow is None else frozenset(allow))
        return self._held_against_settings(check_in(known, value))

    def check_amendment(self, value: Any, so_far: SoFar) -> Plan:
        """Check an amendment to a run against what is registered here. Raises `protocol.Rejected`."""
        plan = check_amendment(value, so_far, self._surroundings)
        try:
            return self._supported(self._held_against_settings(plan))
        except Rejected as rejected:
            raise Rejected(placed(problem, value) for problem in rejected.errors) from None

    @property
    def _surroundings(self) -> Surroundings:
        return Surroundings(
            activities=self._registry.schemas(),
            delegates=self._known_delegates,
            model=self.settings.model is not None,
            strict_meta=self.settings.strict_meta,
            limits=limits_of(self.settings),
        )

    @property
    def _known_delegates(self) -> KnownDelegates:
        return KnownDelegates(self.settings, self._registry)

    def _held_against_settings(self, plan: Plan) -> Plan:
        """The plan with what this backend adds. Raises `Rejected` for what it asks and this backend does not have."""
        problems = list(self._loosened(plan))
        for call in plan.calls if self.settings.model is None else ():
            name = call.runner.name
            is_code = name in self._registry.delegates and name not in plan.submission.delegates
            if call.runner.executor is Executor.DELEGATE and not is_code:
                at = pointer(*plan.submission.place(call.index), *place_in(call.raw, "_delegate"))
                problems.append(
                    Problem(at, f"delegate {name!r} is for a model, and none is configured: set ACTS_MODEL")
                )
        if problems:
            raise Rejected(problems)
        queued = frozenset(name for name, activity in self._registry.activities.items() if activity.queue is not None)
        return replace(self._known_delegates.with_definitions(plan), queued=queued)

    @staticmethod
    def _supported(plan: Plan) -> Plan:
        """The plan. Raises `Rejected` for what this version cannot do of it: what cannot be honoured is not ignored."""
        if refused := unsupported(plan):
            raise Rejected(refused)
        return plan

    def _loosened(self, plan: Plan) -> Iterator[Problem]:
        """Settings of a submission that would loosen what the operator has set (SPEC R4.2a)."""
        most, asked = self.settings.limit_run_concurrency, plan.submission.config.get("max_concurrency")
        if most is not None and asked is not None and asked > most:
            yield Problem("/config/max_concurrency", f"{asked}, where {most} is the most that is allowed")

    def run(self, run: str) -> Run:
        """A run by its id. Raises `RunNotFound`, `InfrastructureError`."""
        found = self.run_of(run)
        found.status()
        return found

    def run_of(self, run: str) -> Run:
        """A run by its id, without looking whether it is there."""
        return Run(run, self._redis, self.settings, lambda: self._publisher, self.check_amendment)

    def dead_letters(self) -> DeadLetters:
        """The fire-and-forget calls that failed for good (SPEC R5.3)."""
        return DeadLetters(self._redis, self.settings)

    @cached_property
    def _redis(self) -> Redis:
        return connect(self.settings)

    @cached_property
    def _dispatcher(self) -> Dispatcher:
        from .dispatcher import Dispatcher

        return Dispatcher(self._redis, self._publisher, self.settings)

    @cached_property
    def _publisher(self) -> Publisher:
        from worker.app.application import make_client_application
        from worker.messaging.publisher import Publisher

        return Publisher(make_client_application(self.settings))
