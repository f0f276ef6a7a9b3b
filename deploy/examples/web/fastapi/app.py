"""A service that runs plans, with FastAPI: a page sends a plan and shows what happens (server-sent events).

`pip install . 'fastapi>=0.135' uvicorn` in the clone, then, with the same ACTS_BROKER_URL:

    acts worker --activities tools.py
    uvicorn app:app
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from fastapi import Body, Depends, FastAPI, Header, Request
from fastapi.responses import FileResponse, JSONResponse
from fastapi.sse import EventSourceResponse, ServerSentEvent

from acts_celery import AsyncClient, AsyncRun, InfrastructureError, Rejected, RunNotFound

MAY_CALL = ["price", "letter"]


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, AsyncClient]]:
    async with AsyncClient() as client:  # one for the process; it connects when it is first used
        yield {"client": client}


async def the_client(request: Request) -> AsyncClient:
    return request.state.client


Client = Annotated[AsyncClient, Depends(the_client)]


async def the_run(run_id: str, client: Client) -> AsyncRun:
    return await client.run(run_id)  # not found is said before a stream begins


Run = Annotated[AsyncRun, Depends(the_run)]
app = FastAPI(lifespan=lifespan)


@app.get("/")
async def page() -> FileResponse:
    return FileResponse(Path(__file__).with_name("page.html"))


@app.post("/runs", status_code=202)
async def submit(
    plan: Annotated[dict[str, Any], Body()], client: Client, idempotency_key: Annotated[str | None, Header()] = None
) -> dict[str, str]:
    run = await client.submit(plan, id=idempotency_key, allow=MAY_CALL)
    return {"run": run.id}


@app.get("/runs/{run_id}")
async def result(run: Run) -> dict[str, Any]:
    return (await run.result()).to_dict()


@app.get("/runs/{run_id}/events", response_class=EventSourceResponse)
async def events(run: Run, last_event_id: Annotated[str, Header()] = "0-0") -> AsyncIterator[ServerSentEvent]:
    async for event in run.follow(after=last_event_id):  # a browser that comes back goes on where it was
        yield ServerSentEvent(id=event.id, data=asdict(event) | {"is_end": event.is_end})


@app.exception_handler(Rejected)
async def rejected(_: Request, error: Rejected) -> JSONResponse:
    errors = [{"pointer": one.pointer, "message": one.message} for one in error.errors]
    return JSONResponse({"title": "This plan cannot run", "status": 422, "errors": errors}, 422)


@app.exception_handler(RunNotFound)
async def not_found(_: Request, error: RunNotFound) -> JSONResponse:
    return JSONResponse({"title": "There is no such run", "status": 404, "detail": str(error)}, 404)


@app.exception_handler(InfrastructureError)
async def unavailable(_: Request, error: InfrastructureError) -> JSONResponse:
    return JSONResponse({"title": "Try again soon", "status": 503}, 503, {"Retry-After": "2"})
