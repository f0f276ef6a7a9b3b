"""A chat page: a conversation is one run, and each answer is shown while it is written (server-sent events).

`pip install starlette uvicorn`, then `uvicorn chat:app` with the settings of a worker that runs (`acts worker`).
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, StreamingResponse

from acts_celery import AsyncClient

PAGE = """<!doctype html><meta charset="utf-8"><title>Chat</title><main></main><form><input autofocus></form><script>
let run = null, last = '0-0'
const main = document.querySelector('main'), input = document.querySelector('input')
const line = text => main.appendChild(Object.assign(document.createElement('p'), {textContent: text}))
document.forms[0].onsubmit = async submitted => {
  submitted.preventDefault()
  const body = JSON.stringify({run, text: input.value}), answer = [input.value, ''].map(line)[1]
  input.value = ''
  run = (await (await fetch('/say', {method: 'POST', body})).json()).run
  const source = new EventSource(`/events/${run}?after=${last}`) // it comes back by itself, with Last-Event-ID
  source.onmessage = message => {
    const {text, at, output, end} = JSON.parse(message.data)
    last = message.lastEventId
    if (text) answer.textContent = [...answer.textContent].slice(0, at).join('') + text
    if (output) answer.textContent = output
    if (end) source.close()
  }
}</script>"""


async def say(request: Request) -> JSONResponse:
    said, client = await request.json(), request.app.state.client
    if said["run"] is None:
        return JSONResponse({"run": (await client.submit(said["text"], schema=str)).id})
    await client.run_of(said["run"]).say(said["text"])
    return JSONResponse({"run": said["run"]})


async def told(request: Request) -> AsyncIterator[str]:
    after = request.headers.get("last-event-id") or request.query_params["after"]
    async for event in request.app.state.client.run_of(request.path_params["run"]).follow(after=after):
        data = {"text": event.text, "at": event.at, "output": event.output, "end": event.is_end}
        yield f"id: {event.id}\ndata: {json.dumps(data)}\n\n"


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with AsyncClient() as app.state.client:
        yield


app = Starlette(lifespan=lifespan)
app.add_route("/", lambda _: HTMLResponse(PAGE))
app.add_route("/say", say, methods=["POST"])
app.add_route("/events/{run}", lambda asked: StreamingResponse(told(asked), media_type="text/event-stream"))
