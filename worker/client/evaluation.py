"""Evaluating models: cases, each a submission and what is expected of its output, run for each model (`acts eval`).

    {"name": "tea", "submission": {"context": [{"type": "text", "message": "Tea or coffee?"}], "schema": {}},
     "expect": {"value": "tea"}}

`expect` holds a `value` that the output is to be, a JSON `schema` that it is to fit, or the name of a `function` that
is called with the output, or with the output and the whole result where it takes two arguments. The function says no
by returning False, or by an exception, whose text is the difference. A run that does not complete has not passed, and
one that waits for a person is cancelled.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Final

from ...protocol import Problem, Rejected
from ...protocol.engine.costs import Cost
from ...protocol.errors import json_text, pointer, shortened
from ...protocol.plan.submission import shaped
from ...protocol.schemas import SchemaError, compiled
from ..errors import InfrastructureError, WorkerError
from .async_client import AsyncClient, AsyncRun
from .results import Result
from .submitting import SubmissionOptions

Functions = Callable[[str], Callable[..., Any] | None]
"""Finds a function by its name; None if it is missing."""
Judge = Callable[[Result], str | None]
"""Judges a completed result: says what is wrong with it, or None."""

_KEYS: Final = {"name", "submission", "expect"}
_SHAPE: Final = (
    '{"name": TEXT, "submission": {…}, "expect": {"value": …} or {"schema": {…}} or {"function": NAME}}; the name may '
    "be left out"
)
_TAG: Final = "eval"


@dataclass(frozen=True, slots=True)
class Case:
    """A submission, and what is expected of its result."""

    name: str
    submission: Mapping[str, Any]
    judge: Judge = field(compare=False)


@dataclass(frozen=True, slots=True)
class Trial:
    """A case, run once for one model."""

    case: str
    model: str | None
    """None for the one that the case names, or the settings."""
    repeat: int
    run: str | None = None
    difference: str | None = None
    """The difference from what was expected; None where the case has passed."""
    output: Any = None
    cost: Cost = field(default_factory=Cost)
    seconds: float = 0.0
    """From its submission until its end."""

    @property
    def has_passed(self) -> bool:
        """Whether all was as expected."""
        return self.difference is None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        said = {name: getattr(self, name) for name in ("case", "model", "repeat", "difference", "output", "run")}
        return said | {"passed": self.has_passed, "cost": self.cost.to_dict(), "seconds": round(self.seconds, 3)}


def case_of(value: Any, name: str, functions: Functions, base: Any) -> Case:
    """The case that a line of a file holds; `name` where it says none. Its submission is added to `base`, which may be
    an empty object: contexts are joined, and other parts are replaced. Raises `Rejected`.
    """
    if not isinstance(value, dict) or not value.keys() <= _KEYS or not {"submission", "expect"} <= value.keys():
        raise _refused(f"a case is {_SHAPE}")
    named: Any = value.get("name", name)
    if not isinstance(named, str) or not named.strip():
        raise _refused("the name of a case is a text", "name")
    if not isinstance(value["submission"], dict):
        raise _refused("a submission is an object, as in a FILE for `acts run`", "submission")
    return Case(named, _joined(base, value["submission"]), _judge(value["expect"], functions))


@dataclass(frozen=True, slots=True)
class Trials:
    """How cases are tried: each for every model, so often, and so many at a time."""

    cases: Sequence[Case]
    models: Sequence[str | None] = (None,)
    repeat: int = 1
    concurrency: int = 20
    timeout_seconds: float | None = None
    """After which a run is cancelled, and has not passed."""
    allow: tuple[str, ...] | None = None
    """The only tools, activities and delegates that may be called; None is all."""

    def __len__(self) -> int:
        return len(self.cases) * len(self.models) * self.repeat

    def options(self, case: Case, model: str | None) -> SubmissionOptions:
        """The options of a submission."""
        options: SubmissionOptions = {"allow": self.allow, "name": case.name, "tags": [_TAG]}
        return options if model is None else {**options, "config": {"model": model}}

    def in_order(self, done: Iterable[Trial]) -> list[Trial]:
        """Trials in the order of the cases, the models and the times."""
        names = {case.name: number for number, case in enumerate(self.cases)}
        return sorted(done, key=lambda one: (names[one.case], self.models.index(one.model), one.repeat))

    async def run(self, client: AsyncClient, on_trial: Callable[[Trial], None]) -> None:
        """Try them all; `on_trial` is given each when it has ended. Cancelled, it cancels the runs that are under way.

        Raises `InfrastructureError`.
        """
        left = ((case, model, number) for number in range(self.repeat) for case in self.cases for model in self.models)

        async def work() -> None:
            for case, model, number in left:
                on_trial(await self._tried(client, case, model, number))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.concurrency, len(self))):
                    group.create_task(work())
        except* InfrastructureError as raised:
            raise raised.exceptions[0] from None

    async def _tried(self, client: AsyncClient, case: Case, model: str | None, number: int) -> Trial:
        began = time.monotonic()
        trial = Trial(case.name, model, number)
        try:
            submitted = client.submit_document(case.submission, **self.options(case, model))
            run = await _awaited(submitted)
        except InfrastructureError:
            raise
        except (Rejected, WorkerError) as error:
            return replace(trial, difference=f"refused: {error}", seconds=time.monotonic() - began)
        trial = replace(trial, run=run.id)
        try:
            stopped = await _person(run, self.timeout_seconds)
        except TimeoutError:
            stopped = f"not over within {self.timeout_seconds:g} s"
        except asyncio.CancelledError:
            await _cancel(run)
            raise
        if stopped is not None:
            await _cancel(run)
        seconds = time.monotonic() - began
        result = await run.result()
        trial = replace(trial, cost=result.cost or Cost(), seconds=seconds)
        if stopped is not None:
            return replace(trial, difference=f"{stopped}, so the run was cancelled")
        difference = _failure(result) or await asyncio.to_thread(case.judge, result)
        return replace(trial, difference=difference, output=result.output)


def summary(trials: Sequence[Trial], model: str | None) -> dict[str, Any]:
    """Return how many cases of one model passed, what they cost in all, and the median seconds of one."""
    own = [trial for trial in trials if trial.model == model]
    return {
        "model": model,
        "cases": len(own),
        "passed": sum(trial.has_passed for trial in own),
        "cost": sum((trial.cost for trial in own), Cost()).to_dict(),
        "seconds": round(median(trial.seconds for trial in own), 3) if own else None,
    }


async def _awaited(submitted: Coroutine[Any, Any, AsyncRun]) -> AsyncRun:
    """The run, which is cancelled where we are while it is being submitted."""
    task = asyncio.ensure_future(submitted)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(Rejected, WorkerError):
            await _cancel(await task)
        raise


async def _person(run: AsyncRun, timeout_seconds: float | None) -> str | None:
    """Block until the run has ended, or it or a child run waits for a person; what waits then. Raises
    `TimeoutError`.
    """
    async for event in run.follow(children=True, timeout_seconds=timeout_seconds):
        if event.kind == "held" and (held := await run.held()):
            return f"a call of {held[0]['tool']} waits for a person"
        if event.kind == "run" and event.status == "paused":
            paused = run if event.run is None else run.child(event.run)
            if await paused.plan() is not None:
                return "a plan waits for an approval"
    return None


async def _cancel(run: AsyncRun) -> None:
    with suppress(WorkerError):  # it has ended meanwhile, or its log is gone
        await run.cancel()


def _failure(result: Result) -> str | None:
    """Why a run has not completed: the first call that has failed, but for a loop, which mends such calls."""
    if result.status == "completed":
        return None
    failed = ((call.tool, call.error) for call in result.calls if call.error is not None and result.ticks is None)
    reason = next((f"{tool}: {error['type']}: {error['message']}" for tool, error in failed), result.reason)
    return f"the run is {result.status}" + (f": {shortened(reason)}" if reason else "")


def _judge(expect: Any, functions: Functions) -> Judge:
    if not isinstance(expect, dict) or len(expect) != 1 or not expect.keys() <= {"value", "schema", "function"}:
        raise _refused(f"expect is one of value, schema and function: a case is {_SHAPE}", "expect")
    ((kind, said),) = expect.items()
    if kind == "value":
        return lambda result: next(_differences(said, result.output, ()), None)
    if kind == "schema":
        try:
            schema = compiled(said)
        except SchemaError as error:
            raise _refused(f"not a JSON Schema: {error}", "expect", "schema") from None
        return lambda result: next((_at(each.pointer, each.message) for each in schema.problems(result.output)), None)
    function = functions(said) if isinstance(said, str) else None
    if function is None:
        raise _refused(f"there is no function {said!r} in the modules of --activities", "expect", "function")
    return lambda result: _asked(function, result)


def _asked(function: Callable[..., Any], result: Result) -> str | None:
    """Ask a function about a result: the text of its objection, or None."""
    takes_all = len(inspect.signature(function).parameters) > 1
    try:
        said = function(result.output, result) if takes_all else function(result.output)
    except Exception as error:  # the function is the user's: whatever it raises is what it says
        return shortened(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    return None if said in (None, True) else f"{function.__name__} says {said!r} of {_shown(result.output)}"


def _differences(expected: Any, found: Any, at: tuple[str | int, ...]) -> Iterator[str]:
    """Where one JSON value is not another."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in (*expected, *(key for key in found if key not in expected)):
            if key in expected and key in found:
                yield from _differences(expected[key], found[key], (*at, key))
            else:
                lacks = f"missing; {_shown(expected[key])} is expected" if key in expected else "not expected"
                yield _at(pointer(*at, key), lacks)
    elif isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        for index, (one, other) in enumerate(zip(expected, found, strict=True)):
            yield from _differences(one, other, (*at, index))
    elif expected != found or isinstance(expected, bool) != isinstance(found, bool):
        yield _at(pointer(*at), f"{_shown(found)}, and {_shown(expected)} is expected")


def _at(place: str, text: str) -> str:
    return f"{place or 'the output'}: {text}"


def _shown(value: Any) -> str:
    return shortened(json_text(value))


def _joined(base: Any, submission: Mapping[str, Any]) -> dict[str, Any]:
    document, _ = shaped(base)
    if not isinstance(document, dict):
        raise _refused("the base is no submission, which is an object")
    contexts = [each.get("context", []) for each in (document, submission)]
    joined = [*contexts[0], *contexts[1]] if all(isinstance(each, list) for each in contexts) else contexts[1]
    return {**document, **submission, **({"context": joined} if joined else {})}


def _refused(message: str, *at: str) -> Rejected:
    return Rejected([Problem(pointer(*at), message)])
