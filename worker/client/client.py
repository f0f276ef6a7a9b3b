"""The client: check, submit, and find runs again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from ...broker_config import Settings, load
from ...protocol import Plan, Rejected
from ...protocol.calls.declarations import with_input
from ...protocol.limits import plain
from ..broker.attempts import current_place
from ..errors import OtherFormat, RunNotFound
from ..limits import CONTRACTS_FRESH_SECONDS, CONTRACTS_KEPT_SECONDS, limits_of
from ..registry.activities import Registry
from ..registry.contracts import WorkersRegistry, read_contracts_file, workers_registry
from ..runner.checking import Checker
from ..store.connections import connect, redis_errors
from ..store.run_store import RunStore
from ..store.waiting import DeadLetters
from .files import files_of, require_files
from .run import Run
from .submitting import (
    Label,
    OtherOptions,
    SubmissionOptions,
    Submitted,
    collecting_seldom,
    counted_behind,
    document_of,
    label_of,
    label_options,
    output_type,
    whole,
    with_named_options,
    with_parts,
    with_state,
)

if TYPE_CHECKING:
    from redis import Redis

    from ...protocol.plan.additions import SoFar
    from ..broker.consumer import Publisher
    from .deleting import DeletableRun, DeletableRuns, ErasableRun, ErasableRuns, Erased
    from .deployments import RunIndex, Summary
    from .dispatcher import Dispatcher
    from .results import RunStatus

T = TypeVar("T")


@with_named_options
class Client:
    """Submits to the configured broker, and reads the log.

    Settings come from the environment unless given; the activities that they name are loaded when something is checked
    for the first time. Others must be registered before a submission that uses them is checked: import their modules.
    Where no activities are loaded here, submissions are checked against what the workers announce, or against a file of
    `contracts` that `acts contracts --json` has written.
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
        given = {key: url for key, url in {"broker_url": broker, "redis_url": redis}.items() if url is not None}
        if settings is not None and (given or not isinstance(settings, Settings)):
            raise TypeError("an address is given by its name, and not beside settings: Client(broker=URL, redis=URL)")
        self.settings = settings or load(**given)
        if registry is not None and contracts is not None:
            raise TypeError("contracts are those of code elsewhere: give them without a registry")
        self._registry = registry if contracts is None else read_contracts_file(contracts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        if "_redis" in self.__dict__:
            self._redis.close()

    @overload
    def submit(
        self,
        context: Submitted = (),
        solution: Mapping[str, Any] | None = None,
        *,
        schema: type[T],
        **options: Unpack[OtherOptions],
    ) -> Run[T]: ...

    @overload
    def submit(
        self, context: Submitted = (), solution: Mapping[str, Any] | None = None, **options: Unpack[SubmissionOptions]
    ) -> Run: ...

    def submit(
        self, context: Submitted = (), solution: Mapping[str, Any] | None = None, **options: Unpack[SubmissionOptions]
    ) -> Run:
        """Submit a draft, a whole document (a mapping, as in a file), or a context and a solution: `submit(draft)`,
        `submit(document)`, `submit(context, solution)`. A context alone runs its plan messages, or with a `schema` it
        is a request for a model. A text in the context is a message. `tools` may be a list of functions of activities,
        or of their names; `schema` may be a class of pydantic, and the result's `output` is an object of it then. A
        path or a `File` in the context, or in a chat message's content, is a file that models are shown; `files` are
        those that a document names. `state_of` names a run whose state is the new one's, with its labels; the context
        adds to it.

        With `allow` only the tools, activities and delegates that it names may be called, now and by amendments (SPEC
        R4.2a). The same `id` twice is one run; `name` and `tags` are for people, and to find it by. The run begins
        `at` a moment, a `datetime` or a text in ISO 8601 with an offset from UTC, or at once; of what waits in
        a queue it is taken by its `priority`, 0 to 9. Raises `Rejected`, `InfrastructureError`; `TypeError` for an
        option that there is not.
        """
        return self.submit_document(document_of(context, solution), **options)

    @overload
    def submit_document(self, value: Any, *, schema: type[T], **options: Unpack[OtherOptions]) -> Run[T]: ...

    @overload
    def submit_document(self, value: Any, **options: Unpack[SubmissionOptions]) -> Run: ...

    def submit_document(self, value: Any, **options: Unpack[SubmissionOptions]) -> Run:
        """Submit a whole submission, as in a file. `tools`, `delegates` and `config` are added to its own, and
        replace those of the same name; all else is as in `submit`. Raises `protocol.Rejected`, `InfrastructureError`.
        """
        limits = limits_of(self.settings)
        files = files_of(self.settings, options.get("files"))
        given = plain({**options}, limits)
        state = self.state_of(given["state_of"]) if given.get("state_of") is not None else []
        own = with_parts(plain(whole(value), limits), given, self.checker.tool_of)
        document = files.put_into(with_state(own, state) if state else own)
        with counted_behind(state):
            checked = self.check_submission(document, allow=given.get("allow"))
        run = self.submit_plan(checked, label_of(document, **label_options(given)), files.contents)
        run.output_type = output_type(options.get("schema"))
        return run

    @collecting_seldom()
    def check_submission(self, value: Any, *, allow: Iterable[str] | None = None) -> Plan:
        """Check a whole submission that is to be run here. Raises `protocol.Rejected`."""
        return self._checked(lambda checker: checker.check_submission(whole(value), allow=allow))

    @collecting_seldom()
    def submit_plan(self, plan: Plan, label: Label | None = None, files: Mapping[str, bytes] | None = None) -> Run:
        """Submit what `check_submission` has checked, with the files that it names, by their digests. Raises
        `InfrastructureError`; `IdTaken` for an id of another submission, `Rejected` for a file that is missing.
        """
        contents = files or {}
        require_files(plan, contents, self.settings)
        with redis_errors(self.settings):
            known = replace(label or Label(trace=current_place()), contracts=self.checker.registry.origin)
            started = self._dispatcher.submit(plan, known, contents)
        run = self.run_of(started.run, started.since)
        run.is_new = started.is_new
        return run

    def state_of(self, run: str) -> list[dict[str, Any]]:
        """Read the state of a run, named as in `find`, as messages from which another run begins: global, and of each
        instance what it has of its own, with the sources of what others wrote (SPEC R16.2). Raises `RunNotFound`,
        `AmbiguousRun`, `OtherFormat`, `IsSimulation`, `InfrastructureError`.
        """
        from .archive import state_of

        found = self.find(run)
        found.require()
        with redis_errors(self.settings):
            return state_of(RunStore.open(self._redis, self.settings.key_prefix, found.id), self.checker.trust_of)

    def check(self, value: Any, *, allow: Iterable[str] | None = None) -> Plan:
        """Check a whole submission against what is registered here, without a server; if nothing is, against what the
        workers announce. Raises `protocol.Rejected`.
        """
        return self._checked(lambda checker: checker.check(whole(value), allow=allow))

    def run(self, run: str, inputs: Mapping[str, Any] | None = None, /, **more: Any) -> Run:
        """Find a run by its id; with inputs, as keywords or as an object, a new run of the workflow of that name (SPEC
        R9.4), whose name the run has. A workflow that takes none is started with `{}`.

        Raises `RunNotFound` for an id, `protocol.Rejected` for a workflow, `InfrastructureError`.
        """
        if inputs is not None or more:
            document = with_input(self.checker.workflow(run), {**(inputs or {}), **more})
            return self.submit_document(document, name=run)
        found = self.run_of(run)
        found.status()
        return found

    def find(self, text: str) -> Run:
        """Find a run by its id, the beginning of its id, its name (the newest of that name), or `latest`. A name and
        `latest` mean runs of your own (without a token: those that were submitted without one); others have an id.

        Raises `RunNotFound`, `AmbiguousRun`, `InfrastructureError`.
        """
        with redis_errors(self.settings):
            return self.run_of(self._overview.find(text))

    def runs(
        self,
        *,
        status: RunStatus | None = None,
        name: str | None = None,
        tags: Iterable[str] = (),
        older_than_seconds: float | None = None,
        left_out: Callable[[str], object] | None = None,
    ) -> Iterator[Summary]:
        """List the runs that are kept, the newest first; of a status, of a name or tag, with all of some `tags` such as
        `customer=42`, or that ended so long ago; `left_out` hears of an absent server. Raises `InfrastructureError`.
        """
        from .deployments import RunFilter

        with redis_errors(self.settings):
            yield from self._overview.runs(RunFilter(status, name, older_than_seconds, frozenset(tags)), left_out)

    def deletable_runs(
        self,
        *,
        status: RunStatus | None = None,
        name: str | None = None,
        older_than_seconds: float | None = None,
        free_bytes: int | None = None,
        is_largest_first: bool = False,
    ) -> DeletableRuns:
        """List the runs that have ended and could be deleted, the oldest or the largest first; with `free_bytes` only
        as many as free so much. Nothing is deleted. Raises `InfrastructureError`.
        """
        from .deleting import Deleter
        from .deployments import RunFilter

        which = RunFilter(status, name, older_than_seconds)
        with redis_errors(self.settings):
            return Deleter(self._redis, self.settings).choose(which, free_bytes, is_largest_first=is_largest_first)

    def delete_runs(self, runs: Iterable[DeletableRun]) -> Iterator[DeletableRun]:
        """Delete runs that `deletable_runs` has found, a few at a time as this is iterated, and yield those that are
        deleted. One that goes on meanwhile stays. Raises `InfrastructureError`; what was yielded is deleted then.
        """
        from .deleting import Deleter

        with redis_errors(self.settings):
            yield from Deleter(self._redis, self.settings).delete(runs)

    def erasable_runs(
        self,
        instances: Iterable[str],
        *,
        status: RunStatus | None = None,
        name: str | None = None,
        older_than_seconds: float | None = None,
    ) -> ErasableRuns:
        """Find the runs that have ended and hold something of these instances, such as one person, and why others have
        to stay. Nothing is deleted. Raises `InfrastructureError`.
        """
        from .deleting import Eraser
        from .deployments import RunFilter

        which = RunFilter(status, name, older_than_seconds)
        with redis_errors(self.settings):
            return Eraser(self._redis, self.settings).choose(which, tuple(dict.fromkeys(instances)))

    def erase_instances(self, runs: Iterable[ErasableRun]) -> Iterator[Erased]:
        """Delete the instances of runs that `erasable_runs` has found, run by run as this is iterated, and yield what
        was deleted of each and what stays. Raises `InfrastructureError`; what was yielded is deleted then.
        """
        from .deleting import Eraser

        with redis_errors(self.settings):
            yield from Eraser(self._redis, self.settings).erase(runs)

    def export_rows(
        self,
        *,
        run: str | None = None,
        status: RunStatus | None = None,
        name: str | None = None,
        older_than_seconds: float | None = None,
        left_out: Callable[[str, OtherFormat], object] | None = None,
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Runs as flat rows for analysis (docs/operations.md), each with the name of its table: `runs`, `calls`,
        `ticks`, `messages`. The newest run comes first; of each a few instances are read at a time. A run that is
        deleted meanwhile is left out, and so is one in a format that is not read (`left_out` is called with it). Raises
        `RunNotFound` for a `run` that is not there, `OtherFormat`, `InfrastructureError`.
        """
        from .deployments import RunFilter
        from .tables import rows_of

        which, is_found = RunFilter(status, name, older_than_seconds), False
        with redis_errors(self.settings):
            for summary, state in self._overview.with_states():
                if run in (None, summary.run) and which.admits(summary):
                    is_found = True
                    try:
                        yield from rows_of(self._redis, self.settings.key_prefix, summary, state)
                    except RunNotFound:
                        continue
                    except OtherFormat as error:
                        if left_out is None:
                            raise
                        left_out(summary.run, error)
        if run is not None and not is_found:
            raise RunNotFound(run)

    def import_run(self, lines: Iterable[str | bytes]) -> Run:
        """Import a run that another backend has exported; it can be read and forked here, under its id.

        Raises `protocol.Rejected`, `OtherFormat`, `InfrastructureError`.
        """
        from .archive import import_lines, read_whole

        with redis_errors(self.settings):
            run = import_lines(self._redis, self.settings, lines, lambda run: read_whole(self.run_of(run)))
            return self.run_of(run)

    @property
    def checker(self) -> Checker:
        """Checks submissions. Only this loads activities: reading and steering runs needs none."""
        own = self._own_checker
        has_code = own.registry.activities or own.registry.delegates or self.settings.activities or self.settings.mcp
        if self._registry is not None or has_code or self.settings.is_embedded or self._has_no_broker:
            return own
        self._workers.renew(CONTRACTS_KEPT_SECONDS)
        return self._workers_checker

    def _checked(self, check: Callable[[Checker], Plan]) -> Plan:
        """Check by what is known; what the workers announce is asked anew before a submission is refused by it."""
        checker = self.checker
        try:
            return check(checker)
        except Rejected:
            if checker is self._own_checker or not self._workers.renew(CONTRACTS_FRESH_SECONDS):
                raise
        return check(checker)

    @cached_property
    def _own_checker(self) -> Checker:
        return Checker(self.settings, self._registry)

    @cached_property
    def _workers_checker(self) -> Checker:
        return Checker(self.settings, self._workers)

    @cached_property
    def _workers(self) -> WorkersRegistry:
        from ..runner.application import make_client_application

        return workers_registry(self.settings, make_client_application)

    @property
    def _has_no_broker(self) -> bool:
        return self.settings.effective_broker_url is None and self.settings.effective_redis_url is None

    @cached_property
    def _overview(self) -> RunIndex:
        from .deployments import RunIndex

        identity = self.settings.identity
        return RunIndex(self._redis, self.settings.key_prefix, asker=identity.name if identity is not None else None)

    def run_of(self, run: str, since: str | None = None) -> Run:
        """A run by its id, without looking whether it is there; `since` as in `Run`."""
        return Run(run, self._redis, self, lambda: self._publisher, self._check_amendment, since)

    def _check_amendment(self, value: Any, so_far: SoFar) -> Plan:
        return self.checker.check_amendment(value, so_far)

    def dead_letters(self) -> DeadLetters:
        """The fire-and-forget calls that failed for good (SPEC R5.3)."""
        return DeadLetters(self._redis, self.settings)

    @cached_property
    def _redis(self) -> Redis:
        return connect(self.settings)

    @cached_property
    def _dispatcher(self) -> Dispatcher:
        from .dispatcher import Dispatcher

        return Dispatcher(self._redis, self._publisher, self.settings, self.checker.registry)

    @cached_property
    def _publisher(self) -> Publisher:
        from ..broker.consumer import Publisher
        from ..runner.application import make_client_application

        return Publisher(make_client_application(self.settings))
