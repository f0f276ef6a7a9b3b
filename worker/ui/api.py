"""The HTTP API: its addresses, what they take and answer, the document that says so (OpenAPI), and the server.

FastAPI routes the requests, reads their queries and headers, and writes the document (`api_models`). Bodies are read by
the handlers, within the server's bounds, so what they hold is declared with the routes.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any, Final

from fastapi import Depends, FastAPI, Header, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from redis import Redis
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from ...broker_config import Settings
from ...broker_config.tokens import AccessToken
from ...protocol import Rejected
from ...protocol.calls.declarations import with_input
from ...protocol.plan.documents import decode
from .. import limits
from ..actions import ACTIONS, Action
from ..client.async_client import AsyncClient, AsyncRun
from ..client.client import Client
from ..client.deployments import RunIndex
from ..client.dispatcher import IdTaken
from ..client.run import ReadableRun
from ..client.submitting import label_of
from ..errors import BadBody, BadQuery, RunNotFound
from ..store.connections import connect
from ..store.keys import ENDED_STATUSES
from ..store.run_writer import measure_runs
from .access import (
    Bodies,
    DocumentAnswer,
    DocumentProcesses,
    Guard,
    Refused,
    encoded,
    out_of_memory,
    refusal,
    serve_documents,
)
from .api_models import (
    SUBMISSION,
    WORKFLOW_INPUT,
    ActionDone,
    CallToDecide,
    DecidedTogether,
    GivenRule,
    ListOfRuns,
    ListOfWorkflows,
    PlanToApprove,
    ProblemDetails,
    QuestionTogether,
    ResultQuery,
    RunOverview,
    RunProgress,
    RunResult,
    RunsQuery,
    SubmissionQuery,
    SubmittedRun,
    WorkflowOverview,
    WorkflowsQuery,
)
from .application import PAGES, EventStream, Pages, ViewerEvent, json_response, leave_with_client, visitor_of
from .opened import Query as Asked
from .opened import within
from .server import WebServer

# The routes.

Handler = Callable[..., Coroutine[Any, Any, Any]]
IdempotencyKey = Annotated[
    str | None,
    Header(description="The id of the run. The same document under the same id is one run, however often it is sent."),
]
Options = Annotated[SubmissionQuery, Query()]
LastEventId = Annotated[str | None, Header(description="Id of the last event received; continue after it.")]
_PROBLEM: Final = "application/problem+json"


class _ApiRoute(APIRoute):
    """A route whose bad queries are refused as all others are."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Handle a request as FastAPI does, but for what it refuses."""
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                return await handle(request)
            except RequestValidationError as error:
                wrong = (f"{'/'.join(map(str, each['loc'][1:]))}: {each['msg']}" for each in error.errors())
                raise BadQuery("; ".join(wrong)[: limits.LONGEST_ERROR]) from None

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
        answers: Mapping[int, Any],
        *,
        name: str,
        summary: str = "",
        body: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a route to the document: the type of what it answers with which status, None for a stream of events, and
        the schema of the body that it takes, which has a title.
        """
        taken = None
        if body is not None:
            self._bodies[body["title"]] = body
            named = {"schema": {"$ref": f"#/components/schemas/{body['title']}"}}
            taken = {"requestBody": {"required": True, "content": {"application/json": named}}}
        stream = {"content": {EventStream.media_type: {"schema": {"type": "string"}}}}
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
            response_class=JSONResponse if None not in answers.values() else EventStream,
            responses=more | {"default": {"model": ProblemDetails, "description": "Why it was refused"}},
            openapi_extra=taken,
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


# The handlers of the API, and the pages beside it.

SERVED: Final = {name: action for name, action in ACTIONS.items() if action.served is not None}
"""The actions that can be asked for here, by the last part of their path. Each takes a right of the token."""


def most_connections(settings: Settings) -> int:
    """How many connections there may be: viewers have theirs as long as they look."""
    return settings.ui_viewers + limits.BESIDE_VIEWERS


class Orders:
    """Submissions, and actions on runs: each in the name of a token."""

    def __init__(self, settings: Settings, tokens: Sequence[AccessToken]) -> None:
        self._settings = settings
        self._log: Redis = connect(settings)
        self._clients = {token.name: Client(settings.acting_for(token.name, token.identity)) for token in tokens}

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            client.close()
        self._log.close()

    def submit(self, body: bytes, by: str, only: str | None, asked: Mapping[str, Any]) -> tuple[int, str]:
        """Submit a document in the name of a token, which sees the runs of the owner `only`, if there is one. Returns
        the status of the answer, and its body.
        """
        return self._submitted(self._decoded(body), by, only, asked)

    def start(self, body: bytes, by: str, only: str | None, asked: Mapping[str, Any], workflow: str) -> tuple[int, str]:
        """Start a workflow with its input (SPEC R9.4), else as `submit`. A run without a name gets the workflow's."""
        inputs = self._decoded(body) if body.strip() else {}
        if not isinstance(inputs, dict):
            raise BadBody("the input of a workflow is an object")
        document = with_input(self._clients[by].checker.workflow(workflow), inputs)
        return self._submitted(document, by, only, {**asked, "name": asked["name"] or workflow})

    def _submitted(self, document: Any, by: str, only: str | None, asked: Mapping[str, Any]) -> tuple[int, str]:
        client = self._clients[by]
        plan = client.check_submission(document, allow=asked["allow"])
        about = {"name": asked["name"], "tags": asked["tag"], "at": asked["at"], "priority": asked["priority"]}
        run = client.submit_plan(plan, label_of(document, id=asked["id"], **about))
        if not run.is_new and only is not None:
            self._require_own(run.id, only)
        findings = within((each.to_dict() for each in plan.findings), limits.FINDINGS_BYTES)
        return 201 if run.is_new else 200, encoded(run.status() | {"findings": findings}).decode()

    def act(self, body: bytes, by: str, run: str, name: str) -> tuple[int, str]:
        """Do something to a run; returns as `submit`."""
        action = SERVED[name]
        given = action.read(self._decoded(body) if body.strip() else {})
        steered = self._clients[by].run(run)
        more = _counted(action.do(steered, **given))
        about = {} if "status" in more else {"status": steered.status()["status"]}
        return 200, encoded({"run": run, **about, **more}).decode()

    def size_of(self, run: str) -> int:
        """How many bytes a run takes in the log."""
        (found,) = measure_runs(self._log, self._settings.key_prefix, [run])
        return found.bytes

    def _decoded(self, body: bytes) -> Any:
        """The value of a body. Raises `BadBody`."""
        try:
            return decode(body, limits.limits_of(self._settings))
        except Rejected as error:
            raise BadBody(str(error)) from None

    def _require_own(self, run: str, owner: str) -> None:
        """Raise `IdTaken` where a run that was there under an id is not the owner's."""
        try:
            RunIndex(self._log, self._settings.key_prefix, owner=owner).find(run)
        except RunNotFound:
            raise IdTaken(run) from None


# A large document is checked in a process of its own (see `access`), which answers as these orders do.


def main() -> None:
    """Execute orders until the input ends."""
    serve_documents(_executing)


@asynccontextmanager
async def _executing(settings: Settings) -> AsyncIterator[DocumentAnswer]:
    orders = Orders(settings, settings.read_ui_tokens())

    async def executed(about: Mapping[str, Any], body: bytes) -> Any:
        try:
            do = getattr(orders, about["do"])
            return {"answer": do(body, **about["given"])}
        except MemoryError:
            refused = out_of_memory()
        except Exception as error:
            refused = refusal(error)
        return {"refused": [refused.status, refused.kind, str(refused), refused.headers, refused.more]}

    yield executed
    orders.close()


class WebApplication(Pages):
    """The pages and the API. Make it in the event loop that serves."""

    def __init__(self, settings: Settings, tokens: Sequence[AccessToken], host: str) -> None:
        super().__init__(settings, tokens)
        self._host = host
        self._threads = ThreadPoolExecutor(limits.ACTION_THREADS, "acts-ui-actions")
        self._orders = Orders(settings, tokens)
        self._documents = DocumentProcesses(settings, __name__)
        self._waiting = AsyncClient(self._source)
        self._bodies = Bodies(int(settings.limit_call_bytes), "ACTS_LIMIT_CALL_BYTES")
        self._submissions = Bodies(int(settings.limit_submission_bytes), "ACTS_LIMIT_SUBMISSION_BYTES")

    @property
    def application(self) -> ASGIApp:
        """The routes, behind their guard."""
        api = HttpApi()
        submitted = {200: SubmittedRun, 201: SubmittedRun}
        api.offer("POST", "/api/runs", self._submit, submitted, name="submit", body=SUBMISSION)
        api.offer("GET", "/api/runs", self._runs, {200: ListOfRuns}, name="list_runs")
        api.offer("GET", "/api/workflows", self._workflows, {200: ListOfWorkflows}, name="list_workflows")
        api.offer("GET", "/api/workflows/{name}", self._workflow, {200: WorkflowOverview}, name="get_workflow")
        api.offer("POST", "/api/workflows/{name}", self._start, submitted, name="start", body=WORKFLOW_INPUT)
        api.offer("GET", "/api/runs/{run}", self._run, {200: RunOverview}, name="get_run")
        api.offer("GET", "/api/runs/{run}/result", self._result, {200: RunResult, 202: RunProgress}, name="get_result")
        api.offer("GET", "/api/runs/{run}/events", self._events, {200: None}, name="follow")
        held = list[PlanToApprove | CallToDecide]
        api.offer("GET", "/api/runs/{run}/held", self._held, {200: held}, name="list_held")
        together = list[QuestionTogether]
        api.offer("GET", "/api/runs/{run}/questions", self._questions, {200: together}, name="list_questions")
        api.offer("GET", "/api/runs/{run}/rules", self._rules, {200: list[GivenRule]}, name="list_rules")
        for name, action in SERVED.items():
            handler, body = self._act(action), action.parameters.model_json_schema()
            summary = action.summary or action.help
            path = f"/api/runs/{{run}}/{name}"
            done = DecidedTogether if name.endswith("_together") else ActionDone
            api.offer("POST", path, handler, {200: done}, name=name, summary=summary, body=body)
        api.add_route("/api/runs/{run}/{action}", self._no_action, methods=["POST"])
        api.router.routes.extend(self.routes)
        most = most_connections(self._settings)
        return Guard(
            api.routed, access=self._access, site=PAGES, host=self._host, url=self._settings.ui_url, most_requests=most
        )

    async def close(self) -> None:
        """End what follows runs, and the connections."""
        await super().close()
        self._threads.shutdown(wait=False, cancel_futures=True)
        await self._documents.close()
        await self._waiting.close()
        self._orders.close()

    async def _submit(self, request: Request, asked: Options, idempotency_key: IdempotencyKey = None) -> Response:
        """Submit a run, which begins at once, or `at` a moment: 201, or 200 if the same document was submitted under
        the same id before.
        With an `Idempotency-Key` a request can be sent again if its answer was lost.
        """
        return await self._submission(request, asked, idempotency_key, "submit")

    async def _start(
        self, request: Request, name: str, asked: Options, idempotency_key: IdempotencyKey = None
    ) -> Response:
        """Start a workflow of the operator's by its name, with its input as the body; answered as a submission."""
        return await self._submission(request, asked, idempotency_key, "start", workflow=name)

    async def _submission(self, request: Request, asked: SubmissionQuery, key: Any, do: str, **more: str) -> Response:
        visitor = visitor_of(request)
        visitor.require("submit")
        given = {"by": visitor.name, "only": visitor.only, "asked": asked.model_dump() | {"id": key}, **more}
        async with self._submissions.read(request, visitor.name) as body:
            status, text = await self._executed(do, given, body, is_heavy=True)
        place = {"Location": f"/api/runs/{json.loads(text)['run']}"}
        return json_response(text.encode(), place, status=status)

    async def _executed(self, do: str, given: Mapping[str, Any], body: bytes, *, is_heavy: bool) -> tuple[int, str]:
        """Execute an order: a method of `Orders`. A large one that takes a check has a process of its own."""
        if not is_heavy or len(body) <= limits.DOCUMENTS_SMALL_BYTES:
            execute = partial(getattr(self._orders, do), body, **given)
            found: tuple[int, str] = await asyncio.get_running_loop().run_in_executor(self._threads, execute)
            return found
        answered = await self._documents.answer(given["by"], {"do": do, "given": given}, body)
        if "refused" in answered:
            raise Refused(*answered["refused"])
        status, text = answered["answer"]
        return status, text

    async def _runs(self, request: Request, asked: Annotated[RunsQuery, Query()]) -> Response:
        """List runs, the newest first, a page at a time."""
        query = {name: str(value) for name, value in asked.model_dump(exclude={"tag"}, exclude_none=True).items()}
        query["tag"] = "\n".join(asked.tag)
        return json_response(await self._reader.body("runs", query, visitor_of(request).only))

    async def _workflows(self, request: Request, asked: Annotated[WorkflowsQuery, Query()]) -> Response:
        """List the workflows of the operator's folders (`ACTS_DELEGATES`). Not for tokens with the right `own`."""
        return json_response(await self._reader.body("workflows", dict(asked), visitor_of(request).only))

    async def _workflow(self, request: Request, name: str) -> Response:
        """Say what a workflow needs, gives, costs and can reach. Not for tokens with the right `own`."""
        return json_response(await self._reader.body("workflow", {"name": name}, visitor_of(request).only))

    async def _run(self, request: Request, run: str) -> Response:
        """Show a run at a glance. RUN is its id, the beginning of it, its name, or `latest`."""
        return json_response(await self._reader.body(f"runs/{await self._found(request, run)}", {}))

    async def _result(self, request: Request, run: str, asked: Annotated[ResultQuery, Query()]) -> Response:
        """Give the result of a run that has ended: 200, also if it has failed. With a `timeout` wait so long for the
        end of a run that goes on; if it still goes on, the answer is 202 with its status: ask again.
        """
        found = await self._found(request, run)
        if asked.timeout:
            reader = self.following.read(visitor_of(request).name, _end_of(self._waiting.run_of(found)))
            going = asyncio.create_task(leave_with_client(reader, request.receive))
            try:
                await reader.next(asked.timeout)
            finally:
                going.cancel()
                self.following.leave(reader)
        status, body = await self._reader.call(found, lambda: self._read_result(found))
        return json_response(body, status=status)

    def _read_result(self, run: str) -> tuple[int, bytes]:
        reading = ReadableRun(run, self._redis, self._source)
        status = reading.status()
        if status["status"] not in ENDED_STATUSES:
            return 202, encoded(status)
        if (size := self._orders.size_of(run)) > (most := limits.DOCUMENTS_MOST_ANSWERED):
            text = f"the run has {size} bytes, and one answer is for {most} at most"
            raise Refused(413, "TooLarge", f"{text}: GET /api/runs/{run}/instances has it by pages, `acts show` all")
        return 200, encoded(reading.result().to_dict())

    async def _events(self, request: Request, run: str, last_event_id: LastEventId = None) -> Any:
        """Follow a run from its beginning, or behind the event with the id `Last-Event-ID`, until it has ended: each
        server-sent event has an `id`, its kind as `event`, and JSON as `data`. The last one has the kind `run` and a
        status such as `completed`. While nothing happens a comment comes every 15 seconds.
        """
        after = Asked({"Last-Event-ID": last_event_id or "0-0"}).moment("Last-Event-ID") or "0-0"
        reading = self._waiting.run_of(await self._found(request, run))
        await reading.require()  # what cannot be read is refused before the stream begins
        return EventStream(self.following, self.following.read(visitor_of(request).name, _events_of(reading, after)))

    async def _held(self, request: Request, run: str) -> Response:
        """List what waits for a person: the plan that is to be approved, if there is one, and the calls that have
        waited longest, also those of child runs.
        """
        return json_response(await self._reader.body(f"runs/{await self._found(request, run)}/held", {}))

    async def _questions(self, request: Request, run: str) -> Response:
        """List held calls that wait for the same sources as one question each: what all have alike, and in `rows` what
        differs. `approve_together` and `reject_together` take its `calls`, and decide those alone.
        """
        return json_response(await self._reader.body(f"runs/{await self._found(request, run)}/questions", {}))

    async def _rules(self, request: Request, run: str) -> Response:
        """List the rules that were given with approvals, the oldest first: what each lets start, what it has started,
        and whether it was revoked.
        """
        return json_response(await self._reader.body(f"runs/{await self._found(request, run)}/rules", {}))

    def _act(self, action: Action) -> Handler:
        """Make the handler of an action."""

        async def act(request: Request, run: str) -> Response:
            visitor = visitor_of(request)
            visitor.require(action.right)
            if visitor.only is not None and await self._found(request, run) != run:
                raise RunNotFound(run)  # the beginning of an id and a name are for reading
            given = {"by": visitor.name, "run": run, "name": action.name}
            async with self._bodies.read(request, visitor.name) as body:
                _, text = await self._executed("act", given, body, is_heavy=action.right == "submit")
            return json_response(text.encode())

        return act

    async def _no_action(self, _: Request) -> Response:
        raise Refused(404, "NoSuchDeed", f"there is no such deed; there are {', '.join(SERVED)}")


# What the follower of a run gets: its events, or that the run has ended.


async def _events_of(run: AsyncRun, after: str) -> AsyncGenerator[ViewerEvent, None]:
    async for event in run.follow(after=after):
        about = {name: value for name, value in asdict(event).items() if value is not None}
        yield ViewerEvent(event.kind, encoded(about), id=event.id)


async def _end_of(run: AsyncRun) -> AsyncGenerator[ViewerEvent, None]:
    await run.ended()
    yield ViewerEvent("ended", b"")


def _counted(done: dict[str, Any]) -> dict[str, Any]:
    """Shorten what an action has done, or would do: of many calls the first ones, and how many there are."""
    lists = {name: value for name, value in done.items() if isinstance(value, list)}
    first = {name: calls[: limits.APPLICATION_NAMED] for name, calls in lists.items()}
    return done | first | ({"counts": {name: len(calls) for name, calls in lists.items()}} if lists else {})


# The server: from its socket to its end, with which everything ends that follows a run.


async def serve(
    listening: socket.socket, host: str, settings: Settings, tokens: Sequence[AccessToken], on_ready: Callable[[], None]
) -> None:
    """Serve until SIGINT or SIGTERM, which end it in good order. `on_ready` is called when requests are answered."""
    pages = WebApplication(settings, tokens, host)
    try:
        most = most_connections(settings)
        # Viewers end first, who would stay for ever.
        await WebServer(pages.application, most, on_ready, pages.following.close).serve([listening])
    finally:
        await pages.close()


def link(address: str, token: str) -> str:
    """The link that enters with a token: in the part of an address that a browser sends to nobody."""
    return f"{address}/#token={token}"
