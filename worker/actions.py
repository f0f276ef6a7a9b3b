"""Actions: what a user can do to a run, each declared once.

The commands of the command line, the routes of the pages and the tools of the MCP server are made from `ACTIONS`. A
function is one action: its parameters are the action's, its documentation is the command's help, and it returns what
the answer has besides the run's status. No library is loaded until an action is used, so that `acts --help` is fast.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_type_hints

from . import limits
from .errors import BadBody

if TYPE_CHECKING:
    from pydantic import BaseModel

    from ..broker_config.tokens import Right
    from .client.run import Run

Done = dict[str, Any]
"""Fields of an answer besides the run and its status."""
DoneT = TypeVar("DoneT", bound=Callable[..., Done])
_MOMENT: Final = re.compile(r"\d{1,19}-\d{1,19}", re.ASCII)


@dataclass(frozen=True)
class Action:
    """One thing that a user can do to a run."""

    name: str
    right: Right
    """The right that a token must have."""
    do: Callable[..., Done]
    """Does it to a run; takes its parameters by name."""
    summary: str
    """The line in the list of commands; empty without a command."""
    served: tuple[str, ...] | None
    """Parameters that HTTP requests may have; None if HTTP does not offer the action."""

    @property
    def help(self) -> str:
        """Help of the command."""
        return inspect.getdoc(self.do) or ""

    @cached_property
    def parameters(self) -> type[BaseModel]:
        """The model of a request over HTTP. It is strict, so that no field of a request is ignored."""
        from pydantic import ConfigDict, create_model

        hints, known = get_type_hints(self.do, localns={"Run": Any}), inspect.signature(self.do).parameters
        fields: dict[str, Any] = {
            name: (hints[name], ... if known[name].default is inspect.Parameter.empty else known[name].default)
            for name in self.served or ()
        }
        config = ConfigDict(extra="forbid", strict=True, frozen=True)
        return create_model(self.name, __config__=config, **fields)

    def read(self, body: Any) -> dict[str, Any]:
        """Read the parameters of a body. Raises `BadBody`."""
        from pydantic import ValidationError

        try:
            parameters = self.parameters.model_validate(body)
        except ValidationError as error:
            wrong = (f"{'/'.join(map(str, each['loc'])) or 'the body'}: {each['msg']}" for each in error.errors())
            raise BadBody(f"{self.name} is not asked for in this way: {'; '.join(wrong)}") from None
        return {name: getattr(parameters, name) for name in self.served or ()}


ACTIONS: Final[dict[str, Action]] = {}
"""Every action by its name."""


def _action(right: Right, summary: str = "", *, served: str | None = None) -> Callable[[DoneT], DoneT]:
    """Declare a function as an action; `served` names the parameters that may come over HTTP."""

    def declare(do: DoneT) -> DoneT:
        name = do.__name__
        ACTIONS[name] = Action(name, right, do, summary, tuple(served.split()) if served is not None else None)
        return do

    return declare


@_action("decide", "Let a held call run.", served="call parameters scopes shown rule")
def approve(
    run: Run,
    call: int | str,
    *,
    parameters: dict[str, Any] | None = None,
    scopes: list[str] | None = None,
    shown: str | None = None,
    rule: dict[str, Any] | None = None,
    by: str | None = None,
    **instead: Any,
) -> Done:
    """Let CALL of RUN run as it was shown. CALL is its id, or its index if only one held call has that index. On a
    terminal the call is shown first, and you are asked; elsewhere give --shown, or --yes. --plan approves the plan of a
    run in mode lazy; this is refused if another plan waits now. With --for-all no later run of the same plan waits.
    With --rule later calls of the run that are like CALL start, too: `acts rules` shows rules, `acts revoke` ends one.

    Exit codes: 0 approved, 2 what is given does not fit, 3 no server, 4 no such run, it is
    over, or the call does not wait.
    """
    return {"id": run.approve(call, parameters=parameters, scopes=scopes, rule=rule, by=by, shown=shown, **instead)}


@_action("decide", "Reject a held call.", served="call reason shown")
def reject(run: Run, call: int | str, reason: str, *, shown: str | None = None, by: str | None = None) -> Done:
    """End CALL of RUN with an error of type Rejected, which goes where an exception of its activity would go. On a
    terminal the call is shown first, and you are asked; elsewhere give --shown, or --yes.

    Exit codes: 0 rejected, 2 what is given does not fit, 3 no server, 4 no such run, it is
    over, or the call does not wait.
    """
    return {"id": run.reject(call, reason, by=by, shown=shown)}


@_action("decide", served="calls")
def approve_together(run: Run, calls: dict[str, str], *, by: str | None = None) -> Done:
    """Let several held calls run: each by its id, with what was shown of it. Nothing else is decided."""
    return run.approve_together(_few(calls), by=by)


@_action("decide", served="calls reason")
def reject_together(run: Run, calls: dict[str, str], reason: str, *, by: str | None = None) -> Done:
    """End several held calls with an error of type Rejected: each by its id, with what was shown of it."""
    return run.reject_together(_few(calls), reason, by=by)


def _few(calls: dict[str, str]) -> dict[str, str]:
    """The calls of one decision. Raises `BadBody` for none, or more than are shown at once."""
    if not 0 < len(calls) <= limits.MOST_HELD:
        raise BadBody(f"calls names {len(calls)} calls: give 1 to {limits.MOST_HELD} as they were shown")
    return calls


@_action("decide", "Revoke a rule of a run.", served="rule")
def revoke(run: Run, rule: str, *, by: str | None = None) -> Done:
    """Revoke RULE of RUN, as `acts rules` names it: calls that it would have let start are held from now on.

    Exit codes: 0 revoked, 3 no server, 4 no such run or rule, or the run is over.
    """
    run.revoke_rule(rule, by=by)
    return {}


@_action("decide", "Answer a question of a run.", served="call value shown")
def answer(run: Run, call: int | str, value: Any, *, shown: str | None = None, by: str | None = None) -> Done:
    """Answer CALL of RUN, a question (ask_human). TEXT, or the value of --value, is the call's result. On a terminal
    the question is shown first; elsewhere give --shown, or --yes.

    Exit codes: 0 answered, 2 what is given does not fit, 3 no server, 4 no such run, it is
    over, or the call does not wait.
    """
    return {"id": run.answer(call, value, by=by, shown=shown)}


@_action("decide", "Record the outcome of a call whose end is unknown.", served="call outcome value reason shown")
def settle(
    run: Run,
    call: int | str,
    outcome: str,
    *,
    value: Any = None,
    reason: str = "",
    shown: str | None = None,
    by: str | None = None,
) -> Done:
    """Settle CALL of RUN, which runs at most once, was begun, and has no known end
    (`acts held` shows what is known of it): --done, with --value as its result, or --failed REASON; or have it begin
    --again. On a terminal the call is shown first; elsewhere give --shown, or --yes.

    Exit codes: 0 settled, 2 what is given does not fit, 3 no server, 4 no such run, it is
    over, or the call does not wait.
    """
    return {"id": run.settle(call, outcome, value=value, reason=reason, by=by, shown=shown)}


@_action("decide", "Change the moment that a call waits for.", served="call until")
def move(run: Run, call: int | str, until: str | float, *, by: str | None = None) -> Done:
    """Let CALL of RUN, a call of the tool wait, end at another moment. UNTIL is ISO 8601 with its offset, or a number
    of seconds from now. A moment in the past ends it at once.

    Exit codes: 0 moved, 2 UNTIL is no moment, 3 no server, 4 no such run, it is
    over, or the call waits for no moment.
    """
    return {"id": run.move(call, until, by=by)}


@_action("decide", served="plan")
def approve_plan(run: Run, plan: str, *, by: str | None = None, for_all: bool = False) -> Done:
    """Let the calls of a plan run, by its digest; with `for_all` also those of all later runs of the same plan."""
    run.approve_plan(plan, by=by, for_all=for_all)
    return {}


@_action("control", "Retry the failed calls of a run.", served="call instance downstream effects dry")
def retry(
    run: Run,
    *,
    call: int | None = None,
    instance: str | None = None,
    downstream: bool = False,
    effects: bool = False,
    dry: bool = False,
    **skipped: Any,
) -> Done:
    """Retry the failed calls of RUN in place, and decide again on calls that were skipped because of them.

    A run that has ended continues. Calls that used a result that is written again become stale: they are listed, and
    --downstream runs them again. For fire-and-forget calls, use `acts dead resend`.

    Exit codes: 0 under way, 2 the value does not fit, 3 no server, 4 no such run, or nothing to do again.
    """
    if effects and not downstream:
        raise BadBody("effects says what downstream runs again: give both")
    do = run.would_retry if dry else run.retry
    return do(call=call, instance=instance, downstream=downstream, effects=effects, **skipped).to_dict()


@_action("control", served="call instance value")
def skip(run: Run, *, call: int | None = None, instance: str | None = None, value: Any = None, **extent: bool) -> Done:
    """Take failed calls as done with a value."""
    return retry(run, call=call, instance=instance, skip=True, value=value, **extent)


@_action("control", "Pause a run; running calls finish.", served="")
def pause(run: Run) -> Done:
    """Pause RUN: running calls finish, and no others begin. `acts resume` continues it.

    Exit codes: 0 paused, 3 no server, 4 no such run, or it is over.
    """
    run.pause()
    return {}


@_action("control", "Resume a paused run.", served="ticks")
def resume(run: Run, *, ticks: int | None = None) -> Done:
    """Resume RUN after a pause; with --ticks, continue a loop that has reached a limit.

    Exit codes: 0 under way, 3 no server, 4 no such run, or it is over.
    """
    run.resume(ticks=ticks)
    return {}


@_action("control", "Cancel a run; later results do not count.", served="undo")
def cancel(run: Run, *, undo: bool = False) -> Done:
    """Cancel RUN. Running calls are stopped where possible; later results do not count.

    With --undo another run calls the `undo` activities of its finished calls, the newest first; RUN may be over. The
    command names that run, and the calls that are not undone. Repeat it as you like: no call is undone twice.

    Exit codes: 0 cancelled, 2 the run that undoes was refused, 3 no server, 4 no such run, or it is over.
    """
    undone = run.cancel(undo=undo)
    return undone.to_dict() if undone is not None else {}


@_action("control", "Start a new run from a moment of another run.", served="at paused")
def fork(run: Run, *, at: str | None = None, paused: bool = False) -> Done:
    """Start a new run from the state of RUN, now or at a past message, and print its id.

    Calls that had ended by then do not run again, even if they failed (use `acts retry`); all others do.
    RUN itself does not change.

    Exit codes: 0 forked, 3 no server, 4 no such run.
    """
    if at is not None and not _MOMENT.fullmatch(at):
        raise BadBody(f"at={at[:100]!r} is not an id of the log such as 1763683200000-0")
    return run.fork(at, paused=paused).status()


@_action("submit", "Replace the calls of a run that have not begun.", served="amendment add")
def amend(run: Run, amendment: dict[str, Any], *, add: bool = False) -> Done:
    """Replace the calls of RUN that have not begun with those in FILE (or - for standard input).

    FILE holds {"calls": […]}, and "tools" and "delegates" if needed. The new calls see all data of the run.
    Replaced calls end as skipped; running calls continue. A running run is paused meanwhile.

    Exit codes: 0 amended, 2 rejected and nothing changed, 3 no server, 4 no such run, or it is over.
    """
    run.amend(amendment, add=add)
    return {}


@_action("submit", "Add a text to the next request of a loop.", served="message")
def say(run: Run, message: str | dict[str, Any] | list[str | dict[str, Any]]) -> Done:
    """Add TEXT to the context of RUN's loop for its next request. A loop that has ended continues.

    Exit codes: 0 said, 2 a file cannot be taken, 3 no server, 4 no such run, no loop, or it was cancelled.
    """
    run.say(message)
    return {}


@_action("submit", "Add data messages to a run under way.", served="messages")
def send(run: Run, messages: dict[str, Any] | list[dict[str, Any]]) -> Done:
    """Add the data messages of FILE (or - for standard input) to RUN: all of them or none.

    FILE holds a message such as {"type": "input", "input": {…}}, or a list of them; "_instance" names the instance.
    The promise's schema validates them. Calls that wait for it continue.

    Exit codes: 0 added, 2 rejected and nothing added, 3 no server, 4 no such run, or it is over.
    """
    run.send(messages)
    return {}


@_action("control", "Delete finished runs, one or many.", served="instances foreign")
def delete(run: Run, *, instances: Sequence[str] | None = None, foreign: bool = False) -> Done:
    """Delete RUN, which must have ended: its log, values, child runs and dead letters.

    Or all runs that the options choose: without --yes they are only listed, with the space they would free. Runs under
    way stay, and so do runs with unfinished fire-and-forget calls. It deletes a few runs at a time; if it is
    interrupted, run the same command again.

    With --instance, delete only what RUN holds about that instance: its messages, calls, files, child runs and dead
    letters. Without RUN, delete it from every finished run, or from those that the options choose; they are listed
    first, too. The command prints what may still hold its data.

    Exit codes: 0 deleted, or listed, 3 no server, 4 no such run, or it is not over.
    """
    if instances is None:
        return run.delete(foreign=foreign).to_dict()
    if foreign or not instances:
        raise BadBody("instances names some, and goes without foreign: leave it out to delete the whole run")
    return run.delete_instances(*instances).to_dict()
