"""The HTTP API: its addresses, what they take and answer, and the document that says so (OpenAPI).

FastAPI routes the requests, reads their queries and headers, and writes the document. Bodies are read by the handlers,
within the server's bounds, so what they hold is declared here beside the routes.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from importlib.metadata import version
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, Header, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from .. import limits
from ..client.results import RunStatus
from ..errors import BadQuery

# What requests ask, besides their bodies. A parameter that is not declared is refused.


class ApiQuery(BaseModel):
    """The query of a request."""

    model_config = ConfigDict(extra="forbid")


Label = Annotated[str, Field(min_length=1, max_length=200)]


class SubmissionQuery(ApiQuery):
    """What is said of a submission beside the document."""

    name: Label | None = Field(None, description="What the run is called.")
    tag: list[Label] = Field([], max_length=20, description="A text to find the run by; may be repeated.")
    allow: list[Label] | None = Field(
        None, description="Only these tools, activities and delegates may be called; may be repeated."
    )


class RunsQuery(ApiQuery):
    """Which runs to list."""

    status: RunStatus | None = None
    name: Label | None = Field(None, description="Runs of this name.")
    tag: Label | None = Field(None, description="Runs with this tag.")
    search: Label | None = Field(None, description="Runs with this text in their id, their name or a tag.")
    limit: int = Field(limits.PAGE_RUNS_AT_ONCE, ge=1, le=limits.PAGE_RUNS_AT_ONCE, description="How many at most.")
    after: Label | None = Field(None, description="`next` of the answer before, for the runs that follow.")


class ResultQuery(ApiQuery):
    """How long to wait for a result."""

    timeout: float = Field(
        0, ge=0, le=limits.WAIT_MOST_SECONDS, description="Wait so many seconds for the end of the run."
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


class RunState(ApiAnswer):
    """The status of a run."""

    run: str = Field(description="The id of the run.")
    status: RunStatus
    calls: dict[str, int] = Field(description="How many calls have which status.")


class SubmittedRun(RunState):
    """A run that was submitted."""

    findings: list[dict[str, Any]] = Field(description="What `acts check` finds in the document, as warnings.")


class ListedRun(RunState):
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


class RunOverview(ApiAnswer):
    """A run at a glance."""

    run: str
    name: str | None
    tags: list[str]
    status: RunStatus
    submitted: str | None
    finished: str | None
    counts: dict[str, int] = Field(description="How many calls have which status.")
    instances: int = Field(description="How many instances it has.")
    held: int = Field(description="How many calls wait for a person: `GET /api/runs/RUN/held` shows them.")
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
    """What a run has come to, as `acts run --json` prints it."""

    run: str
    status: RunStatus
    output: Any
    global_: dict[str, Any] = Field(alias="global", description="The data that all instances see, by kind.")
    instances: dict[str, dict[str, Any]] = Field(description="The data of each instance, by kind.")
    instance_status: dict[str, str]
    calls: list[ResultCall]


class ActionDone(ApiAnswer):
    """What an action has done."""

    run: str = Field(description="The run; of a fork the new one.")
    status: str


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


# The routes.

Handler = Callable[..., Coroutine[Any, Any, Any]]
IdempotencyKey = Annotated[
    str | None,
    Header(description="The id of the run. The same document under the same id is one run, however often it is sent."),
]
LastEventId = Annotated[str | None, Header(description="The id of the last event that has come: go on behind it.")]
_PROBLEM: Final = "application/problem+json"


class ServerSentEvents(Response):
    """A stream of events."""

    media_type = "text/event-stream"


class _ApiRoute(APIRoute):
    """A route whose bad queries are refused as all others are."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Handle a request as FastAPI does, but for what it refuses."""
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                wrong = (f"{each['loc'][-1]}: {each['msg']}" for each in error.errors())
                raise BadQuery("; ".join(wrong)[: limits.API_BAD_QUERY]) from None

        return handler


class HttpApi(FastAPI):
    """The routes of the API, and their document at `/api/openapi.json`."""

    def __init__(self) -> None:
        super().__init__(
            title="acts-celery",
            version=version("acts-celery"),
            description="Submit runs, wait for them, follow and steer them. Every request takes a token.",
            openapi_url="/api/openapi.json",
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
            dependencies=[Depends(HTTPBearer(auto_error=False, description="A token of ACTS_UI_TOKENS."))],
        )
        self.router.route_class = _ApiRoute
        self._bodies: dict[str, Any] = {}
        """The schemas of bodies, by their titles."""

    def offer(
        self,
        method: str,
        path: str,
        handler: Handler,
        answers: Mapping[int, type[BaseModel] | None],
        *,
        name: str,
        summary: str = "",
        body: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a route to the document: what it answers with which status, None a stream of events, and the schema of
        the body that it takes, which has a title.
        """
        if body is not None:
            self._bodies[body["title"]] = body
            named = {"schema": {"$ref": f"#/components/schemas/{body['title']}"}}
            taken = {"requestBody": {"required": True, "content": {"application/json": named}}}
        stream = {"content": {ServerSentEvents.media_type: {"schema": {"type": "string"}}}}
        more: dict[int | str, dict[str, Any]] = {
            status: {"model": model} if model is not None else stream for status, model in answers.items()
        }
        self.add_api_route(
            path,
            handler,
            methods=[method],
            operation_id=name,
            summary=summary or None,
            tags=["runs"],
            status_code=min(answers),
            response_class=JSONResponse if None not in answers.values() else ServerSentEvents,
            responses=more | {"default": {"model": ProblemDetails, "description": "Why it was refused"}},
            openapi_extra=taken if body is not None else None,
        )

    def openapi(self) -> dict[str, Any]:
        """The document of the API: every refusal is a problem (RFC 9457)."""
        found = super().openapi()
        found["components"]["schemas"].update(self._bodies)
        for operation in (each for path in found["paths"].values() for each in path.values()):
            refused = operation["responses"]["default"]
            refused["content"] = dict.fromkeys([_PROBLEM], *refused["content"].values())
        return found

    @property
    def routed(self) -> ASGIApp:
        """The routes without FastAPI's own answers to errors: these are the guard's (see `access`)."""
        return AsyncExitStackMiddleware(self.router)
