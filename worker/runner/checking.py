"""Checking a submission against what is registered here and what the settings say; needs no server."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from asyncio import IncompleteReadError, LimitOverrunError, create_subprocess_exec
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from posixpath import normpath
from signal import SIGKILL, SIGPROF
from typing import TYPE_CHECKING, Any, Final, TypedDict, TypeVar, Unpack

from ...broker_config import Settings
from ...protocol import Plan, Problem, Rejected, check_amendment, check_in
from ...protocol.calls.call import ASK_HUMAN, QUESTION, Call, place_in
from ...protocol.calls.declarations import declares_tools, has_own_run, is_workflow, workflow_document
from ...protocol.calls.tools import ANONYMOUS, Executor, Runner
from ...protocol.calls.trust import ENDORSES, NOTHING, OperatorTrust, ToolTrust
from ...protocol.engine.loop import PRICE_REMEDY
from ...protocol.errors import pointer
from ...protocol.facade import explained
from ...protocol.paths import MISSING
from ...protocol.plan.additions import SoFar, placed
from ...protocol.plan.checked_plan import CheckedPlan
from ...protocol.plan.checking import Environment, delegate_problems, reach_of
from ...protocol.plan.config import is_simulation
from ...protocol.plan.lanes import Unresolvable
from ...protocol.plan.submission import delegates_called
from ...protocol.plan.support import unsupported
from ...protocol.requests import Request, read_request
from ...protocol.requests.tool_texts import JSON, TOOLS, can_be_carried, first_schema
from ...protocol.schemas.costs import EXCEEDED
from ...protocol.schemas.validation import Check, OffloadedChecks, verdict_of
from .. import limits
from ..errors import WorkerError
from ..fairness import FairSemaphore
from ..limits import limits_of, most_of
from ..registry.activities import Registry
from ..registry.activities import registry as default_registry
from ..registry.loading import require_own_queues
from ..registry.mcp_tools import load_code, unadmitted
from ..registry.models import KnownModels, Usage
from ..registry.request_definitions import KnownDelegates, operator_trust
from ..store.definition import Trusts
from ..store.keys import LOOP
from .rooms import agent

if TYPE_CHECKING:
    from ...protocol.analysis.visibility import RequestReach, WorkflowReach


L = TypeVar("L", bound=CheckedPlan)


class FromParent(TypedDict, total=False):
    """Facts for checking a submission that are not known here: the names that its calls may use, those that
    `config.approve` may name, and what was said of tools where the run that it belongs to was submitted.
    """

    allow: Iterable[str] | None
    approved: Iterable[str]
    operator: OperatorTrust


class Checker:
    """Checks submissions and amendments. Without a `registry` the activities that the settings name are loaded.
    Raises `ActivitiesError` for these, and for the file of what the operator says of tools.
    """

    def __init__(self, settings: Settings, registry: Registry | None = None) -> None:
        if registry is None:
            load_code(settings)
        self._settings = settings
        self._registry = registry or default_registry
        require_own_queues(self._registry, settings)
        self._operator = operator_trust(settings)
        self._kept: Environment | None = None

    def check(self, value: Any, delegates: Mapping[str, Any] | None = None, **known: Unpack[FromParent]) -> Plan:
        """Check a whole submission; its `config.approve` may name `approved` besides, and `delegates` are those of the
        run that it belongs to, which may endorse. Raises `protocol.Rejected`.
        """
        return self._completed(check_in(self._known(**known), value), value, delegates)

    def check_submission(
        self, value: Any, delegates: Mapping[str, Any] | None = None, **known: Unpack[FromParent]
    ) -> Plan:
        """Check a whole submission that is to be run here, by this version; see `check`. Raises `protocol.Rejected`."""
        plan = self.check(value, delegates, **known)
        is_asked = plan.submission.is_request and plan.submission.config.get("model") is None
        if is_asked and not self._has_model:
            text = "a request needs a model, and none is configured: set ACTS_MODEL, or give a solution"
            raise Rejected([Problem(pointer("schema"), text)])
        return _supported(plan)

    def request(self, value: Any, *, wire: str | None = None, **known: Unpack[FromParent]) -> Request:
        """Compose the request that a model would get for a submission (SPEC R12.9); see `check`. It goes by the model's
        own `wire` where none is given. Raises `protocol.Rejected`.
        """
        request = replace(read_request(value, self._known(**known)), explain=explained)
        models = KnownModels(self._settings, self._registry).with_fallbacks(request.config.get("model"))
        if wire is None:
            wire = models[0].wire if models else JSON
        if models:
            has_texts, sends_nulls = (any(map(ask, models)) for ask in (agent().writes_texts, agent().writes_nulls))
            request = replace(request, has_texts=has_texts, sends_nulls=sends_nulls)
        return replace(request, is_native=True) if wire == TOOLS and can_be_carried(request) else request

    def _known(
        self, allow: Iterable[str] | None = None, approved: Iterable[str] = (), operator: OperatorTrust | None = None
    ) -> Environment:
        own = self._environment
        said = own.operator | operator if operator is not None else own.operator
        allowed = None if allow is None else frozenset(allow)
        spellings = {name: self._known_delegates.spelled(name) for name in sorted(allowed or ())}
        if problems := [Problem("", f"allow: {one!r} is written {name!r}") for one, name in spellings.items() if name]:
            raise Rejected(problems)
        return replace(own, allow=allowed, approved=tuple(approved), operator=said, model=self._has_model)

    def reach(self, value: Any, *, allow: Iterable[str] | None = None) -> RequestReach:
        """Find all that a model can do by a submission that is a request (SPEC R12.8). Raises `protocol.Rejected`."""
        from ...protocol.analysis.visibility import reach_of

        request = self.request(value, allow=allow)
        model = KnownModels(self._settings, self._registry).find(request.config.get("model"))
        reach = reach_of(request, self._registry.delegates)
        if model is None:
            return reach
        reason, findings = agent().unenforced(model, first_schema(request), is_native=request.is_native)
        return replace(reach, unenforced=reason, findings=findings)

    def unready_models(self, plan: Plan) -> Iterator[str]:
        """List the models of a plan that cannot be asked from here; those of the workers are not known."""
        known, delegates = KnownModels(self._settings, self._registry), plan.submission.delegates
        asking = [plan.submission.config] if plan.submission.is_request else []
        for call in plan.calls:
            name, executor = call.runner.name, call.runner.executor
            is_code = executor is Executor.ACTIVITY or (name in self._registry.delegates and name not in delegates)
            is_code = is_code or (executor is Executor.DELEGATE and is_workflow(delegates.get(name, {})))
            if not is_code and not (executor is Executor.LATENT and (call.output is None or call.given is not MISSING)):
                asking.append({**plan.submission.config, **(delegates.get(name, {}).get("config") or {})})
        for asked in dict.fromkeys(config.get("model") for config in asking):
            model = known.find(asked)
            if model is None:
                yield "a model is asked, and none is configured here: set ACTS_MODEL where delegates run"
            elif agent().lacks_key(model):
                yield f"model {model.model} has no key here: set ACTS_MODEL_API_KEY where delegates run"

    def check_amendment(self, value: Any, so_far: SoFar) -> Plan:
        """Check an amendment to a run. Raises `protocol.Rejected`."""
        plan = check_amendment(value, so_far, self._environment)
        try:
            return _supported(self._completed(plan, value), is_new=False)
        except Rejected as rejected:
            raise Rejected(placed(problem, value) for problem in rejected.errors) from None

    def complete(self, layout: CheckedPlan) -> CheckedPlan:
        """The layout of a solution's calls, with what they name here. Raises `protocol.Rejected`."""
        complete = _supported(self._known_delegates.with_definitions(layout), is_new=False)
        if problems := list(delegate_problems(complete.submission, complete.calls)):
            raise Rejected(problems)
        return complete

    def workflow(self, name: str) -> dict[str, Any]:
        """The submission that a workflow of the operator's folders is (SPEC R9.4). Raises `protocol.Rejected`."""
        return self._known_delegates.workflow(name)

    def workflows(self, is_asked: Callable[[str], bool]) -> Iterator[tuple[str, Mapping[str, Any] | None]]:
        """Yield the workflows of the operator's folders whose name is asked for, and their definitions; None for a file
        that cannot be read as a definition.
        """
        known = self._known_delegates
        for name in filter(is_asked, known.named()):
            try:
                definition = known.definition(name)
            except WorkerError:
                yield name, None
                continue
            if definition is not None and is_workflow(definition):
                yield name, definition

    def workflow_reach(self, name: str, plan: Plan) -> WorkflowReach:
        """Find what a workflow, checked as this plan, needs, gives, costs and can reach (SPEC R9.4). One below it that
        lacks what its caller gives it by scopes is counted and not looked into.
        """
        from ...protocol.analysis.visibility import workflow_reach

        delegates, below = plan.submission.delegates, dict[str, CheckedPlan]()
        for one, definition in delegates.items():
            if is_workflow(definition):
                with suppress(Rejected):
                    document = {**workflow_document(definition), "delegates": delegates}
                    below[one] = check_in(self._known(allow=plan.allow), document)
        return workflow_reach(name, plan, below, self._registry.delegates)

    def tool_of(self, function: Callable[..., Any]) -> str:
        """The tool that an activity's function is registered as; its own name where it is not."""
        known = (name for name, activity in self._registry.activities.items() if activity.function is function)
        return next(known, function.__name__)

    def trust_of(self, calls: Iterable[Call], delegates: Mapping[str, Any]) -> Trusts:
        """Find the trust that this process' code and operator give calls, by the names of their tools and their code;
        `delegates` are the definitions of their run. Nothing of it endorses: that goes with a run (SPEC R16.1).
        """
        named = {(call.tool, call.runner) for call in calls}
        said = {name: self._operator.of(name) for name in {tool for tool, _ in named}} if self._operator else {}
        for runner in {runner for _, runner in named}:
            said[runner.name] = ToolTrust.together((said.get(runner.name, NOTHING), *self._of_code(runner, delegates)))
        return {name: one for name, one in said.items() if one}

    def _of_code(self, runner: Runner, delegates: Mapping[str, Any]) -> Iterator[ToolTrust]:
        if runner.executor is Executor.DELEGATE:
            known = replace(self._environment, definitions=lambda name: None)  # no file is read, and no address asked
            yield replace(reach_of(delegates, known).of_delegate(runner.name), endorses=False)
            yield self._operator.of(normpath(runner.name).removesuffix(".json"))  # runs of versions before spell freely
            return
        yield self._operator.of(runner.name)
        code = self._registry.activities.get(runner.name) if runner.executor is Executor.ACTIVITY else None
        if code is not None:
            yield code.contract.tool.trust

    @property
    def registry(self) -> Registry:
        """The registry of this process."""
        return self._registry

    @property
    def _environment(self) -> Environment:
        """The protocol with the tools that were read for it, kept as long as the same activities are registered."""
        activities = {ASK_HUMAN: QUESTION, **self._registry.schemas()}
        if self._kept is None or self._kept.activities != activities:
            self._kept = self._made(activities)
        return self._kept

    def _made(self, activities: Mapping[str, Mapping[str, Any]]) -> Environment:
        return Environment(
            activities=activities,
            delegates=self._known_delegates,
            definitions=self._known_delegates.definition,
            spelled=self._known_delegates.spelled,
            operator=self._operator,
            model=self._has_model,
            strict_meta=self._settings.strict_meta,
            limits=limits_of(self._settings),
            remedy=lambda name: unadmitted(self._settings, name) or self._registry.missing,
        )

    @property
    def _has_model(self) -> bool:
        """Whether there is a model for what names none."""
        return KnownModels(self._settings, self._registry).find(None) is not None

    @property
    def _known_delegates(self) -> KnownDelegates:
        return KnownDelegates(self._settings, self._registry)

    def _completed(self, plan: Plan, value: Any, known: Mapping[str, Any] | None = None) -> Plan:
        """The plan of a submitted value with what this backend adds. Raises `Rejected` for what it asks and this
        backend does not have.
        """
        problems = [*self._loosened(plan), *self._unfit_models(plan), *self._unpriced(plan), *_reserved(plan)]
        problems += _self_endorsed(value, known or {})
        if is_simulation(plan.submission.config) and ANONYMOUS in self._registry.delegates:
            text = f"asks a model as the delegate {ANONYMOUS!r}, which is code here: register that under another name"
            problems.append(Problem(pointer("config", "latent"), text))
        complete = self._known_delegates.with_definitions(plan)
        problems += self._without_model(complete)
        problems += self._unfit_loops(complete)
        problems += delegate_problems(complete.submission, complete.calls)
        if problems:
            raise plan.submission.shape.rejected(problems)
        queued = frozenset(name for name, activity in self._registry.activities.items() if activity.queue is not None)
        called = {call.runner.name for call in plan.calls if call.output is None}
        code = {name: known for name, known in self._registry.delegates.items() if name in called}
        giving = frozenset(name for name, known in code.items() if known.gives_result)
        return replace(complete, queued=queued, giving=giving)

    def _without_model(self, plan: Plan) -> Iterator[Problem]:
        """Delegates that a model is to answer, where none is named and there is no default."""
        if self._has_model:
            return
        submission = plan.submission
        for call in plan.calls:
            name = call.runner.name
            is_code = name in self._registry.delegates and name not in submission.delegates
            definition = submission.delegates.get(name, {})
            named = {**submission.config, **(definition.get("config") or {})}.get("model")
            is_code = is_code or is_workflow(definition)
            if call.runner.executor is Executor.DELEGATE and not is_code and named is None:
                at = pointer(*submission.place(call.index), *place_in(call.raw, "_delegate"))
                yield Problem(at, f"delegate {name!r} needs a model, and none is configured: set ACTS_MODEL")

    def _unfit_loops(self, plan: Plan) -> Iterator[Problem]:
        """Yield the problems of delegates that are answered by runs of their own: loops and workflows (SPEC R9.3)."""
        delegates = plan.submission.delegates
        for name, definition in delegates.items():
            if not has_own_run(definition):
                continue
            value = {"context": definition.get("context", []), "tools": definition.get("tools", {})}
            callers = [call for call in plan.calls if call.runner.name == name]
            is_called_below = any(name in delegates_called(one) for one in delegates.values())
            scoped = {scope.kind for call in callers for scope in call.scopes}
            may_be_given = not callers or is_called_below or plan.submission.is_request
            try:
                if is_workflow(definition):
                    check_in(self._known(allow=plan.allow), {**workflow_document(definition), "delegates": delegates})
                    continue
                self.request(
                    {**value, "schema": definition.get("schema", {}), "delegates": delegates}, allow=plan.allow
                )
            except Rejected as rejected:
                for problem in rejected.errors:
                    if not (problem.pointer.startswith("/delegates") or _comes_later(problem, scoped, may_be_given)):
                        yield replace(problem, pointer=pointer("delegates", name) + problem.pointer)

    def _loosened(self, plan: Plan) -> Iterator[Problem]:
        """Settings of a submission that would loosen what the operator has set (SPEC R4.2a)."""
        for key, most in {"max_concurrency": self._settings.limit_run_concurrency, **most_of(self._settings)}.items():
            asked = plan.submission.config.get(key)
            if most is not None and asked is not None and asked > most:
                yield Problem(pointer("config", key), f"{asked}, where at most {most} are allowed")

    def _unfit_models(self, plan: Plan) -> Iterator[Problem]:
        """Models that are named and not configured - a `config` holds no addresses (SPEC R13.11) -, settings that the
        model does not have, or one that is asked in its stead, and more tools than it takes (SPEC R12.8).
        """
        known, config = KnownModels(self._settings, self._registry), plan.submission.config
        tools = len(plan.submission.declared) if plan.submission.is_request else 0
        asking: list[tuple[tuple[str, ...], Mapping[str, Any], Mapping[str, Any], int]] = [
            (("config",), config, config, tools)
        ]
        for name, definition in plan.submission.delegates.items():
            own = definition.get("config") or {}
            tools = len(definition.get("tools") or ()) if declares_tools(definition) else 0
            asking.append((("delegates", name, "config"), own, {"model": config.get("model"), **own}, tools))
        for at, own, whole, tools in asking:
            asked: str | None = whole.get("model")
            model = known.find(asked)
            if model is None and own.get("model") is not None:
                there = ", ".join(known) or "none"
                message = f"no model {asked!r} is configured (ACTS_MODEL, ACTS_MODELS); there is {there}"
                yield Problem(pointer(*at, "model"), message)
            for each in (model, *known.fallbacks(model)) if model is not None else ():
                for key in agent().missing_settings(each, own):
                    yield Problem(pointer(*at, key), f"{each.model} has no such setting: leave it out")
                if (most := agent().most_tools(each)) is not None and tools > most:
                    text = f"{tools} tools, and {each.model} takes {most} as functions, and one for the output"
                    remedy = 'list fewer, let a delegate have some of them, or set the model\'s "wire" to "json"'
                    yield Problem(pointer(*at[:-1], "tools"), f"{text}: {remedy}")

    def _unpriced(self, plan: Plan) -> Iterator[Problem]:
        """Money that is limited where a model has no price that may be asked (SPEC R13.3)."""
        config, delegates = plan.submission.config, plan.submission.delegates
        owns = {("delegates", name, "config"): definition.get("config") or {} for name, definition in delegates.items()}
        if config.get("money") is None and all(own.get("money") is None for own in owns.values()):
            return
        known, is_limited = KnownModels(self._settings, self._registry), config.get("money") is not None
        for at, own in ((("config",), config), *owns.items()):
            asked = known.with_fallbacks(own.get("model") or config.get("model"))
            unpriced = [model.model for model in asked if agent().price_of(model, Usage(0, 0)) is None]
            if unpriced and (is_limited or own.get("money") is not None):
                place = at if own.get("money") is not None else ("config",)
                text = f"no price is known of {unpriced[0]}, which {pointer(*at)} asks: {PRICE_REMEDY}"
                yield Problem(pointer(*place, "money"), text)


def _reserved(plan: Plan) -> Iterator[Problem]:
    """The name of a loop's lane, where a request has an instance of that name."""
    for index, message in enumerate(plan.context.messages if plan.submission.is_request else ()):
        if message.get("_instance") == LOOP:
            yield Problem(pointer("context", index, "_instance"), f"{LOOP!r} is the loop's own: use another name")
            return


def _comes_later(problem: Problem, scoped: Collection[str], may_be_given: bool) -> bool:
    """Whether a workflow lacks a value that its callers give it by their scopes, or may (SPEC R9.2)."""
    if not isinstance(problem.cause, Unresolvable):
        return False
    return may_be_given or any(one.kind in scoped for one in problem.cause.expression.references)


def _self_endorsed(value: Any, known: Mapping[str, Any]) -> Iterator[Problem]:
    """Delegates of a submission that endorse what others wrote, but those of its parent: that is the operator's to say
    (SPEC R16.3).
    """
    delegates = value.get("delegates") if isinstance(value, Mapping) else None
    for name, definition in delegates.items() if isinstance(delegates, Mapping) else ():
        if isinstance(definition, Mapping) and definition.get(ENDORSES) and definition is not known.get(name):
            text = "only a definition in the operator's folders (ACTS_DELEGATES) endorses: leave it out, or name one"
            yield Problem(pointer("delegates", name, ENDORSES), text)


def _supported(plan: L, *, is_new: bool = True) -> L:
    """The plan. Raises `Rejected` for what this version cannot do of it: what cannot be honoured is not ignored."""
    if refused := unsupported(plan, is_new=is_new):
        raise plan.submission.shape.rejected(refused)
    return plan


# The validator: what would hold up the event loop is done beside it.
#
# Heavy checks have a process of their own, since jsonschema-rs holds the interpreter's lock. It is begun when the first
# one comes, and again where it has died: what it was asked is asked once more. Other work that grows with what others
# have written, such as reading the answer of a model, has a thread, where what it checks is checked in that process.

T = TypeVar("T")

logger = logging.getLogger(__name__)

_PROGRAM: Final = (
    "import sys; sys.path[:] = sys.argv[1:]; from acts_celery.worker.runner.validating import main; main()"
)
"""The command of the validator's process, which imports from the places of this one and from no current folder."""
_DIED: Final = (OSError, IncompleteReadError, LimitOverrunError)


class Validator:
    """The validator of one worker process, on its event loop."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._places = FairSemaphore(1)
        self._threads = FairSemaphore(1)

    def place(self, run: str) -> AbstractAsyncContextManager[None]:
        """Hold a run's place while it asks; runs take turns."""
        return self._places.one(run)

    async def in_thread(self, run: str, work: Callable[[], T]) -> T:
        """Do some work for a run in a thread, one at a time; runs take turns."""
        checks = _AwaitedChecks(asyncio.get_running_loop(), self, run)

        def done() -> T:
            with checks:
                return work()

        async with self._threads.one(run):
            return await asyncio.to_thread(done)

    async def verdict(self, check: Check) -> list[Problem]:
        """Have the validator's process make a check, and read its answer; the caller holds the place."""
        for _ in range(limits.VALIDATOR_DEATHS):
            if self._process is None:
                try:
                    self._process = await begun(_PROGRAM, limits.VALIDATOR_ANSWER_BYTES)
                except _DIED as error:
                    logger.warning("no process for heavy checks can be begun (%r): one is made on the loop", error)
                    return verdict_of(check)
            process = self._process
            try:
                return await _answer(process, check)
            except _DIED as error:
                await self.close()
                logger.warning("the process for heavy checks has ended with %s (%r)", process.returncode, error)
                if process.returncode == -SIGPROF:
                    break  # its time was over
            except BaseException:
                await self.close()  # its answer is not awaited any more
                raise
        return [Problem(pointer(*json.loads(check.how)[2]), EXCEEDED)]

    async def close(self) -> None:
        """End the process, where there is one."""
        process, self._process = self._process, None
        if process is not None:
            await killed(process)


class _AwaitedChecks(OffloadedChecks):
    """Heavy checks of a thread, which waits for each."""

    __slots__ = ("_loop", "_run", "_validator")

    def __init__(self, loop: asyncio.AbstractEventLoop, validator: Validator, run: str) -> None:
        super().__init__()
        self._loop, self._validator, self._run = loop, validator, run

    def of(self, how: list[Any], document: str, value: Any) -> list[Problem]:
        """List the problems of a value by a schema."""
        check = Check(json.dumps(how), document, json.dumps(value))
        try:
            return asyncio.run_coroutine_threadsafe(self._verdict(check), self._loop).result(limits.PATIENCE_SECONDS)
        except TimeoutError:
            return [Problem(pointer(*how[2]), EXCEEDED)]

    async def _verdict(self, check: Check) -> list[Problem]:
        async with self._validator.place(self._run):
            return await self._validator.verdict(check)


async def begun(program: str, most_answered: int, environment: Mapping[str, str] | None = None) -> Process:
    """Begin a process beside this one that runs a program of ours, and wait until it says that it is ready. It may
    answer lines of so many bytes. Raises `OSError`, `IncompleteReadError` or `LimitOverrunError` where it does not.
    """
    # In a session of its own, since a signal for the worker's group is not for it: it ends when the worker has.
    process = await create_subprocess_exec(
        *(sys.executable, "-I", "-c", program, *sys.path),
        stdin=PIPE,
        stdout=PIPE,
        limit=most_answered,
        start_new_session=True,
        env=environment,
    )
    assert process.stdout is not None
    try:
        await process.stdout.readuntil()
    except BaseException:
        await killed(process)
        raise
    return process


async def _answer(process: Process, check: Check) -> list[Problem]:
    """Raises one of `_DIED` where there is none."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.writelines(line.encode() + b"\n" for line in check)
    await process.stdin.drain()
    return [Problem(*told) for told in json.loads(await process.stdout.readuntil())]


async def killed(process: Process) -> None:
    """End a process at once, and wait until it has ended."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            # Not `process.kill()`, which asks first whether it has ended: how it has would be lost to asyncio.
            os.kill(process.pid, SIGKILL)
    await process.wait()
