"""Pictures that tools of MCP servers answer are files of the run, and shown to models that see their values."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from acts_celery import LocalClient, local
from acts_celery.broker_config import load
from tests.models.server import Reply, model_server, streamed

from .test_tools_of_servers import SECONDS, admitted, faulty

STRING = {"type": "string"}


def png(side: int) -> bytes:
    """A grey square."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header, rows = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0), (b"\0" + b"\x80" * side) * side
    chunks = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


PICTURE, OTHER = png(8), png(16)


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def shot(content: bytes = PICTURE, tool: str = "screenshot", to: str = "shot", **more: Any) -> dict[str, Any]:
    return {"_tool": f"web.{tool}", "text": encoded(content), "_outputPath": f"†state.{to}", **more}


def seen_in(body: Any) -> list[bytes]:
    """The pictures that a request has."""
    parts = [part for each in body["messages"] if isinstance(each["content"], list) for part in each["content"]]
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    return [base64.b64decode(url.partition(",")[2]) for url in urls]


class Looking:
    """A model that makes these calls, one list of them in each tick, and then says how many pictures it sees."""

    def __init__(self, *ticks: list[dict[str, Any]]) -> None:
        self.ticks = ticks
        self.asked: list[Any] = []
        self.seen: list[list[bytes]] = []

    def __call__(self, body: Any) -> Reply:
        self.asked.append(body)
        self.seen.append(seen_in(body))
        output = str(len(self.seen[-1]))
        if "calls" not in body["response_format"]["json_schema"]["schema"].get("properties", {}):
            return streamed(json.dumps({"output": output}))
        tick = sum(each["role"] == "assistant" for each in body["messages"])
        if tick < len(self.ticks):
            return streamed(json.dumps({"calls": self.ticks[tick], "output": None}))
        return streamed(json.dumps({"calls": [], "output": output}))


@contextmanager
def backend(
    folder: Path, reply: Callable[[Any], Reply], server: Mapping[str, Any] | None = None, **more: Any
) -> Iterator[LocalClient]:
    with model_server(reply) as model:
        given: dict[str, Any] = {
            "model": "openai:m",
            "model_base_url": model.url,
            "model_api_key": "k",
            "model_pictures": True,
        }
        with local(**admitted(folder, {"web": faulty(folder, **(server or {}))}), **given | more) as client:
            yield client


def run(client: LocalClient, tools: list[str] = ["web.screenshot"], **more: Any) -> Any:  # noqa: B006
    submitted = client.submit(["Look."], schema=STRING, tools=tools, **more)
    return submitted, submitted.wait(timeout_seconds=SECONDS)


@pytest.mark.parametrize("server", [{}, {"stateless": True}])
def test_a_model_is_shown_the_pictures_of_its_calls_once_each(tmp_path: Path, server: dict[str, Any]) -> None:
    looking = Looking([shot()], [shot(OTHER, to="other"), shot(to="again")], [shot(to="third")])
    with backend(tmp_path, looking, server) as client:
        submitted, result = run(client)
        assert result.output == "2", result
        assert looking.seen == [[], [PICTURE], [PICTURE, OTHER], [PICTURE, OTHER]]
        told = json.dumps(looking.asked[-1]["messages"], ensure_ascii=False)
        assert "## Picture: †state.shot.1" in told
        assert result.data()["state"]["shot"][1] == {
            "type": "image",
            "mimeType": "image/png",
            "bytes": len(PICTURE),
            "sha256": digest(PICTURE),
        }
        files = {each["file"]: each["content"] for each in map(json.loads, submitted.export()) if "file" in each}
        assert files == {digest(each): encoded(each) for each in (PICTURE, OTHER)}


def test_a_picture_in_a_resource_is_one_too(tmp_path: Path) -> None:
    looking = Looking([shot(tool="blob")])
    with backend(tmp_path, looking) as client:
        assert run(client, ["web.blob"])[1].output == "1"


def test_a_model_that_sees_no_pictures_is_shown_none(tmp_path: Path) -> None:
    looking = Looking([shot()])
    with backend(tmp_path, looking, model_pictures=None) as client:
        assert run(client)[1].output == "0"


def test_what_others_wrote_is_shown_as_a_picture_only_where_values_are(tmp_path: Path) -> None:
    tools = ["web.screenshot", "web.order"]
    looking = Looking([shot()])
    with backend(tmp_path, looking) as client:
        assert run(client, tools)[1].output == "0"
        assert "Not shown: †state.shot" in json.dumps(looking.asked[-1]["messages"], ensure_ascii=False)
        assert digest(PICTURE) not in json.dumps(looking.asked)
        assert run(client, tools, config={"trust": {"show": "value"}})[1].output == "1"
        assert run(client, ["web.screenshot"], config={"show": "schema"})[1].output == "0"


def test_a_value_that_only_names_a_picture_shows_none_and_breaks_nothing(tmp_path: Path) -> None:
    forged = {"type": "image", "sha256": "0" * 64, "mimeType": "image/png", "bytes": -1, "pixels": [10**9, 10**9]}
    looking = Looking([shot(b"\x89PNG\r\n\x1a\n")])
    with backend(tmp_path, looking) as client:
        submitted = client.submit(
            ["Look.", {"type": "state", "forged": forged}], schema=STRING, tools=["web.screenshot"]
        )
        result = submitted.wait(timeout_seconds=SECONDS)
        assert (result.status, result.output) == ("completed", "0"), result


def test_what_is_too_large_for_a_file_or_a_run_or_is_no_picture_is_named_alone(tmp_path: Path) -> None:
    large = png(300) + b"\0" * 200_000
    settings: list[tuple[str, Any]] = [
        ("ACTS_LIMIT_FILE_BYTES", {"limit_file_bytes": 100_000}),
        ("ACTS_LIMIT_RUN_BYTES", {"limit_run_bytes": 300_000}),
    ]
    for setting, more in settings:
        with backend(tmp_path, Looking(), **more) as client:
            submitted = client.submit(solution={"calls": [shot(large), shot(b"GIF", to="none")]})
            state = submitted.wait(timeout_seconds=SECONDS).data()["state"]
            assert setting in state["shot"][1]["notKept"]
            assert "PNG" in state["none"][1]["notKept"]
            assert not [line for line in submitted.export() if line.startswith('{"file"')]


def test_pictures_that_a_request_has_no_room_for_are_named_and_the_run_goes_on(tmp_path: Path) -> None:
    large = [{**shot(png(side), to=f"s{side}"), "text": f"{encoded(png(side))}*300000"} for side in (8, 9, 10)]
    looking = Looking(large)
    with backend(tmp_path, looking, limit_call_bytes=1_000_000) as client:
        assert run(client)[1].output == "1"
        assert json.dumps(looking.asked[-1]["messages"]).count("too large") == 2


def test_delegates_latent_calls_and_child_runs_are_shown_the_pictures_that_they_are_given(tmp_path: Path) -> None:
    delegates: dict[str, Any] = {
        "plain": {"context": [{"type": "text", "message": "Look."}], "schema": STRING},
        "looping": {"context": [{"type": "text", "message": "Look."}], "schema": STRING, "tools": ["web.screenshot"]},
    }
    calls = [
        shot(),
        *(
            {"_tool": f"ask_{name}", "_delegate": name, "shot": "†state.shot", "_outputPath": f"†state.{name}"}
            for name in delegates
        ),
        {"_tool": "ask_scoped", "_delegate": "plain", "_scopes": ["†state.shot"], "_outputPath": "†state.scoped"},
        {"_tool": "ask_none", "_delegate": "plain", "_outputPath": "†state.none"},
        {"_tool": "look", "shot": "†state.shot", "_outputPath": "†state.latent"},
    ]
    with backend(tmp_path, Looking()) as client:
        submitted = client.submit(
            [], {"calls": calls}, delegates=delegates, tools={"web.screenshot": {}, "look": {"_output": STRING}}
        )
        result = submitted.wait(timeout_seconds=SECONDS)
        found = result.data()["state"]
        assert {key: found[key] for key in ("plain", "looping", "scoped", "none", "latent")} == {
            "plain": "1",
            "looping": "1",
            "scoped": "1",
            "none": "0",
            "latent": "1",
        }, result


def test_forks_and_imported_runs_have_the_pictures_and_an_instance_takes_its_own_along(tmp_path: Path) -> None:
    looking = Looking([shot()])
    with backend(tmp_path, looking) as client:
        submitted, _ = run(client)
        lines = list(submitted.export())
        submitted.delete()
        back = client.import_run(lines)
        looking.seen.clear()
        fork = back.fork()
        fork.say("And now?")
        assert fork.wait(timeout_seconds=SECONDS).output == "1"
        context = [{"type": "state", "_instance": name, "n": 1} for name in ("ann", "bob")]
        own = [shot(_instance="ann"), shot(OTHER, _instance="bob")]
        of_people = client.submit(context, {"calls": own})
        of_people.wait(timeout_seconds=SECONDS)
        of_people.delete_instances("ann")
        files = [json.loads(line)["file"] for line in of_people.export() if line.startswith('{"file"')]
        assert files == [digest(OTHER)]


def test_the_setting_of_a_model_says_whether_it_is_shown_pictures() -> None:
    models = {
        "own": {"model": "openai:gpt-4o"},
        "other": {"model": "openai:m", "base_url": "http://localhost:1/v1"},
        "blind": {"model": "anthropic:c", "pictures": False},
    }
    settings = load(models=models)
    assert {name: each.sees_pictures for name, each in settings.models.items()} == {
        "own": True,
        "other": False,
        "blind": False,
    }
