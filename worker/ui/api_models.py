"""What requests to the HTTP API ask and what they are answered, as its document (OpenAPI) says it."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from ...protocol.limits import MOST_URGENT
from .. import limits
from ..client.results import RunStatus

# What requests ask, besides their bodies. A parameter that is not declared is refused.


class ApiQuery(BaseModel):
    """The query of a request."""

    model_config = ConfigDict(extra="forbid")


Label = Annotated[str, Field(min_length=1, max_length=200)]


class SubmissionQuery(ApiQuery):
    """The options of a submission, beside the document."""

    name: Label | None = Field(None, description="What the run is called.")
    tag: list[Label] = Field([], max_length=20, description="A text to find the run by; may be repeated.")
    allow: list[Label] | None = Field(
        None, description="Only these tools, activities and delegates may be called; may be repeated."
    )
    priority: int = Field(0, ge=0, le=MOST_URGENT, description="How soon it is taken of what waits in a queue.")
    at: Label | None = Field(None, description="When the run begins, such as 2026-12-01T09:00:00Z; without it at once.")


class RunsQuery(ApiQuery):
    """Which runs to list."""

    status: RunStatus | None = None
    name: Label | None = Field(None, description="Runs of this name.")
    tag: list[Label] = Field([], max_length=20, description="Runs with this tag; may be repeated: with all of them.")
    search: Label | None = Field(None, description="Runs with each of these words in their id, their name or a tag.")
    limit: int = Field(limits.PAGE_RUNS_AT_ONCE, ge=1, le=limits.PAGE_RUNS_AT_ONCE, description="How many at most.")
    after: Label | None = Field(None, description="`next` of the answer before, for the runs that follow.")


class WorkflowsQuery(ApiQuery):
    """Which workflows to list."""

    search: Label | None = Field(None, description="Workflows with this text in their name.")
    after: Label | None = None


class ResultQuery(ApiQuery):
    """How long to wait for a result."""

    timeout: float = Field(
        0, ge=0, le=limits.READING_LONGEST_WAIT_SECONDS, description="Wait so many seconds for the end of the run."
    )


# What is answered. Answers have more members than are declared here, and may get others.


class ApiAnswer(BaseModel):
    """A document that is answered."""

    model_config = ConfigDict(extra="allow")


class ProblemPlace(BaseModel):
    """One error of a submission."""

    pointer: str = Field(description="Where in the document, as a JSON pointer (RFC 6901).")
    message: str = Field(description="What is wrong, and what to do.")


class ProblemDetails(ApiAnswer):
    """Why a request was refused (RFC 9457)."""

    title: str
    status: int
    detail: str = Field(description="What is wrong, and what to do.")
    code: str = Field(description="The kind of problem, for programs: it does not change between versions.")
    errors: list[ProblemPlace] = Field([], description="Of a submission that was refused: everything that is wrong.")
    more_errors: int = Field(0, description="How many errors there are besides these.")


class RunProgress(ApiAnswer):
    """The status of a run."""

    run: str = Field(description="The id of the run.")
    status: RunStatus
    calls: dict[str, int] = Field(description="How many calls have which status.")


class SubmittedRun(RunProgress):
    """A run that was submitted."""

    findings: list[dict[str, Any]] = Field(description="What `acts check` finds in the document, as warnings.")


class ListedRun(RunProgress):
    """A run in a list."""

    name: str | None
    tags: list[str]
    submitted: str
    finished: str | None
    duration_seconds: float


class ListOfRuns(ApiAnswer):
    """Runs, the newest first."""

    runs: list[ListedRun]
    next: str | None = Field(description="Give it as `after` for the runs that follow; null at the end.")


class ListOfWorkflows(ApiAnswer):
    """Workflows, by name."""

    workflows: list[dict[str, Any]] = Field(description="`name`, `needs` (the names of its inputs), `calls`: how many.")
    next: str | None = Field(description="Give it as `after` for the workflows that follow; null at the end.")


class WorkflowOverview(ApiAnswer):
    """An overview of a workflow: what it needs (the `schema` of its input), gives, costs and can reach, and its
    findings.
    """

    name: str
    problems: list[ProblemPlace] = Field(description="Why it cannot be run from here; there is nothing else then.")


class RunOverview(ApiAnswer):
    """A run at a glance."""

    run: str
    name: str | None
    tags: list[str]
    status: RunStatus
    submitted: str | None
    at: str | None = Field(None, description="When it begins, if it is scheduled.")
    finished: str | None
    counts: dict[str, int] = Field(description="How many calls have which status.")
    instances: int = Field(description="How many instances it has.")
    held: int = Field(description="How many calls wait for a person: `GET /api/runs/RUN/held` shows them.")
    progress: list[dict[str, Any]] = Field([], description="What calls report: `call`, `done`, `total`, `text`.")
    output: Any = Field(description="The output of a run that has completed; a large one is cut.")
    reason: str | None = Field(description="Why a run has failed although no call did.")


class ResultCall(ApiAnswer):
    """One call of one instance."""

    id: str
    index: int
    tool: str
    instance: str | None
    status: str
    error: dict[str, Any] | None
    reason: str | None


class RunResult(ApiAnswer):
    """The result of a run, as `acts run --json` prints it."""

    run: str
    status: RunStatus
    output: Any
    global_: dict[str, Any] = Field(alias="global", description="The data that all instances see, by kind.")
    instances: dict[str, dict[str, Any]] = Field(description="The data of each instance, by kind.")
    instance_status: dict[str, str]
    calls: list[ResultCall]


class CallToDecide(ApiAnswer):
    """A call that waits for a person."""

    call: str = Field(description="The id of the call: give it to `approve`, `reject` or `answer`.")
    index: int
    tool: str
    instance: str | None
    parameters: dict[str, Any]
    scopes: dict[str, Any]
    since: str
    until: str | None = Field(description="When it is rejected if nobody has decided.")
    shown: str = Field(description="Digest of what is shown here. Send it with your decision.")


class PlanToApprove(ApiAnswer):
    """A plan that does not run before it is approved."""

    plan: str = Field(description="The digest of the plan: give it to `approve_plan`.")
    tick: int | None
    calls: list[Any]


class QuestionRow(ApiAnswer):
    """One call of several that are asked about together."""

    call: str
    instance: str | None
    differs: dict[str, Any] = Field(description="What the call does not have alike with the others, by JSON pointer.")
    shown: str


class QuestionTogether(ApiAnswer):
    """Held calls of one run and tool that wait for the same sources: one question."""

    question: str = Field(description="Digest of the question as it is shown here.")
    tool: str
    untrusted: dict[str, Any] = Field(description="The sources: of each parameter, and of whether the calls run.")
    same: dict[str, Any] = Field(description="What all of the calls have alike, by JSON pointer.")
    columns: list[str] = Field(description="The JSON pointers at which the calls differ.")
    rows: list[QuestionRow]
    calls: dict[str, str] = Field(description="Give them to `approve_together` or `reject_together`, as they are.")


class GivenRule(ApiAnswer):
    """A rule of a run: calls like the one that was shown start without a question."""

    rule: str = Field(description="The id of the rule: give it to `revoke`.")
    text: str = Field(description="What the rule lets start, in words.")
    tool: str
    parameters: dict[str, Any] = Field(description="What each parameter that others decide may be.")
    sources: dict[str, list[str]]
    call: str = Field(description="The call that was shown when the rule was given.")
    given: str
    by: str | None
    revoked: str | None = Field(description="When it was revoked; null while it is in force.")
    revoked_by: str | None
    calls: list[str] = Field(description="The calls that it has let start.")


class ActionDone(ApiAnswer):
    """The result of an action."""

    run: str = Field(description="The run; of a fork the new one.")
    status: str


class DecidedTogether(ActionDone):
    """The result of one answer to several calls."""

    decisions: dict[str, str] = Field(description="The id of the decision in the log, by call.")
    left: dict[str, str] = Field(description="The code of the error of each call that somebody has decided on before.")


SUBMISSION: Final = {
    "title": "Submission",
    "description": "A submission as in a file for `acts run`. A bare list of calls is taken, too.",
    "type": "object",
    "additionalProperties": True,
    "properties": {
        "context": {"type": "array", "items": {"type": "object", "additionalProperties": True}},
        **{
            name: {"type": "object", "additionalProperties": True}
            for name in ("solution", "tools", "delegates", "schema", "config")
        },
    },
}
"""The schema of a submission, which `acts check` knows better."""
WORKFLOW_INPUT: Final = {"title": "WorkflowInput", "type": "object", "additionalProperties": True}
