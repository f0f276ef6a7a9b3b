"""Values of a run: files, and keys that a server throws away."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from acts_celery import AsyncClient, File, Run, RunBroken, RunNotFound
from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol import Rejected
from acts_celery.worker.store.keys import Keys
from tests.acceptance.command import acts
from tests.models.server import Reply, model_server, streamed

from .backend import Backend, Meeting, heard, settings_apart
from .test_control_cli import command

# Pictures, documents and texts that a model is shown: given beside a submission, kept beside its log.

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8
LARGE = b"\xff\xd8\xff" + b"\0" * 3_000_000
WEBP = b"RIFF\x04\0\0\0WEBPVP8 "
TEXT = {"type": "string"}


class Eyes:
    """A model that says which pictures it sees, and calls no tool."""

    def __init__(self) -> None:
        self.seen: list[list[bytes]] = []

    def __call__(self, body: Any) -> Reply:
        parts = [part for each in body["messages"] if isinstance(each["content"], list) for part in each["content"]]
        urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
        urls += [part["file"]["file_data"] for part in parts if part["type"] == "file"]
        self.seen.append([base64.b64decode(url.partition(",")[2]) for url in urls])
        self.texts = [part["text"] for part in parts if part["type"] == "text"]
        output = " ".join(hashlib.sha256(each).hexdigest()[:8] for each in self.seen[-1])
        answers = body["response_format"]["json_schema"]["schema"].get("properties", {}).keys() >= {"calls"}
        return streamed(json.dumps({"calls": [], "output": output} if answers else {"output": output}))


@pytest.fixture(scope="module")
def eyes() -> Eyes:
    return Eyes()


@pytest.fixture(scope="module")
def seeing(
    server: EmbeddedServer, eyes: Eyes, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    with model_server(eyes) as model:
        given = {"model": "openai:m", "model_base_url": model.url, "model_api_key": "k"}
        backend = Backend(settings_apart(server, "files", **given), meeting, tmp_path_factory.mktemp("files"))
        with backend.worker():
            yield backend


def named(*contents: bytes) -> str:
    return " ".join(hashlib.sha256(each).hexdigest()[:8] for each in contents)


def stored(backend: Backend, run: Run) -> dict[Any, Any]:
    found: Any = backend.redis.hgetall(Keys(backend.settings.key_prefix, run.id).files)
    return dict(found)


def showing(*files: Any) -> dict[str, Any]:
    parts = [{"type": "file", "file": each} if isinstance(each, str) else each for each in files]
    return {"role": "user", "content": [{"type": "text", "text": "What is it?"}, *parts]}


def test_a_picture_of_megabytes_is_shown_and_stands_in_the_log_by_its_digest(
    seeing: Backend, eyes: Eyes, tmp_path: Path
) -> None:
    path = tmp_path / "cat.jpg"
    path.write_bytes(LARGE)
    run = seeing.client.submit(["What is it?", path, path], schema=TEXT)
    assert seeing.wait(run.id).output == named(LARGE, LARGE)
    (content, _) = (entry.message["content"] for entry in run.log() if "role" in entry.message)
    digest = hashlib.sha256(LARGE).hexdigest()
    part = {"type": "file", "file": "cat.jpg", "media_type": "image/jpeg", "digest": digest, "bytes": len(LARGE)}
    assert content == [part]
    assert list(stored(seeing, run)) == [digest.encode()]
    assert part in [p for message in run.asked(0)["messages"] for p in message["content"] if isinstance(p, dict)]
    assert sum(len(line) for line in run.export() if '"file"' not in line) < 100_000


def test_files_are_given_in_their_place_as_bytes_and_by_name(seeing: Backend, eyes: Eyes, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("Привет", encoding="utf-8")
    message = showing(PNG, File(WEBP, "small.webp"), File(tmp_path / "notes"), "paper")
    run = seeing.client.submit(
        [message], schema=TEXT, files={"paper": File(b"%PDF-1.7 \0", "paper.pdf"), "none": "none"}
    )
    assert seeing.wait(run.id).output == named(PNG, WEBP, b"%PDF-1.7 \0")
    assert eyes.texts == ["What is it?", "Привет"]

    async def submitted() -> str:
        async with AsyncClient(seeing.settings) as client:
            return (await client.submit([PNG], schema=TEXT)).id

    assert seeing.wait(asyncio.run(submitted())).output == named(PNG)


def test_a_file_that_is_named_and_not_given_is_refused_whatever_lies_there(seeing: Backend, tmp_path: Path) -> None:
    path = tmp_path / "secret.txt"
    path.write_text("secret")
    digest = hashlib.sha256(b"secret").hexdigest()
    other = seeing.client.submit([File(b"secret", "secret.txt")], schema=TEXT)
    seeing.wait(other.id)
    for name, more in ((str(path), {}), ("/etc/passwd", {}), ("x", {"digest": digest}), ("x", {"data": "AAAA"})):
        part = {"type": "file", "file": name, **more}
        for document in (
            {"context": [showing(part)], "schema": TEXT},
            {"context": [], "schema": TEXT, "delegates": {"d": {"context": [showing(part)], "schema": TEXT}}},
        ):
            with pytest.raises(Rejected, match=r"was given: `--file NAME=PATH`"):
                seeing.client.submit_document(document)


def test_what_is_wrong_with_files_is_said_of_all_of_them(seeing: Backend, tmp_path: Path) -> None:
    large = tmp_path / "large.png"
    with large.open("wb") as stream:
        stream.truncate(50_000_000)
    (tmp_path / "text.png").write_text("no picture")
    (tmp_path / "odd.bin").write_bytes(b"\xfe\xed\0\0")
    names = ["missing.png", "large.png", "text.png", "odd.bin", "empty", "."]
    (tmp_path / "empty").touch()
    with pytest.raises(Rejected) as refused:
        seeing.client.submit([showing(*(File(tmp_path / name) for name in names))], schema=TEXT)
    problems = {problem.pointer: problem.message for problem in refused.value.errors}
    assert list(problems) == [f"/context/0/content/{number}" for number in range(1, 7)]
    for message, part in zip(
        problems.values(),
        (
            "no such file",
            "50000000 bytes, where 8388608 are allowed (ACTS_LIMIT_FILE_BYTES)",
            "by its name it is image/png, and it holds text/plain",
            "models take PNG, JPEG, GIF, WebP, PDF and texts in UTF-8",
            "models take PNG",
            "no file",
        ),
        strict=True,
    ):
        assert part in message
    many = [File(LARGE[:-number] + b"\0" * 4_000_000, "a.jpg") for number in (1, 2, 3)]
    with pytest.raises(Rejected, match="ACTS_LIMIT_CALL_BYTES"):
        seeing.client.submit([showing(*many)], schema=TEXT)


def test_forks_and_files_of_runs_have_them_and_they_go_with_their_run(
    seeing: Backend, eyes: Eyes, tmp_path: Path
) -> None:
    run = seeing.client.submit([PNG, "What is it?"], schema=TEXT)
    seeing.wait(run.id)
    assert seeing.wait(run.fork("1-1").id).output == named(PNG)  # from its beginning
    lines = list(run.export())
    run.delete()
    assert stored(seeing, run) == {}
    broken = [line.replace(base64.b64encode(PNG).decode(), base64.b64encode(b"other").decode()) for line in lines]
    with pytest.raises(Rejected, match="does not match its digest"):
        seeing.client.import_run(broken)
    back = seeing.client.import_run(lines)
    assert list(stored(seeing, back).values()) == [PNG]
    assert seeing.redis.ttl(Keys(seeing.settings.key_prefix, back.id).files) > 0
    assert seeing.wait(back.fork("1-1").id).output == named(PNG)


def test_a_file_that_is_gone_fails_the_run_that_needs_it(seeing: Backend) -> None:
    run = seeing.client.submit([PNG, "What is it?"], schema=TEXT)
    seeing.wait(run.id)
    seeing.redis.delete(Keys(seeing.settings.key_prefix, run.id).files)
    run.say("And now?")
    result = seeing.wait(run.id)
    assert result.status == "failed"
    assert "the file 'file' is not there" in (result.reason or "")


def test_what_is_said_shows_files_as_a_submission_does(seeing: Backend, eyes: Eyes, tmp_path: Path) -> None:
    path = tmp_path / "cat.png"
    path.write_bytes(PNG)
    run = seeing.client.submit([File(LARGE, "dog.jpg"), "What is it?"], schema=TEXT)
    assert seeing.wait(run.id).output == named(LARGE)
    run.say(["And this?", path])
    assert seeing.wait(run.id).output == named(LARGE, PNG)
    assert set(stored(seeing, run).values()) == {LARGE, PNG}
    run.say(showing("small"), files={"small": File(WEBP, "small.webp")})
    assert seeing.wait(run.id).output == named(LARGE, PNG, WEBP)
    assert eyes.texts[-1] == "What is it?"

    async def said() -> None:
        async with AsyncClient(seeing.settings) as client:
            await client.run_of(run.id).say(b"%PDF-1.7 \0")

    asyncio.run(said())
    assert seeing.wait(run.id).output == named(LARGE, PNG, WEBP, b"%PDF-1.7 \0")
    told = command(seeing, "say", run.id, "And this?", "--file", str(path))
    assert told.code == 0, told
    assert seeing.wait(run.id).output == named(LARGE, PNG, WEBP, PNG, b"%PDF-1.7 \0")  # pictures come first
    run.delete()
    assert stored(seeing, run) == {}


def test_what_cannot_be_said_is_refused_and_nothing_of_it_is_kept(seeing: Backend, tmp_path: Path) -> None:
    run = seeing.client.submit([PNG, "What is it?"], schema=TEXT)
    seeing.wait(run.id)
    before = [entry.id for entry in run.log(audit=True)]
    many = [File(LARGE[:-number] + b"\0" * 5_000_000, "a.jpg") for number in (1, 2, 3)]
    for message, why in (
        (tmp_path / "missing.png", "no such file"),
        (showing("cat"), "no file 'cat' was given"),
        (showing(*many), "ACTS_LIMIT_CALL_BYTES"),
        ({"type": "state", "user": "Ann"}, "data is sent"),
        ({"role": "assistant", "content": "Yes."}, "only a text"),
        ({"type": "text", "message": "Hi", "_instance": "①"}, "remove it"),
        ([], "there is no message"),
    ):
        with pytest.raises(Rejected, match=why):
            run.say(message)
    assert [entry.id for entry in run.log(audit=True)] == before
    assert list(stored(seeing, run).values()) == [PNG]
    refused = command(seeing, "say", run.id, "And this?", "--file", str(tmp_path / "missing.png"))
    assert (refused.code, "no such file" in refused.stderr) == (2, True)


def test_what_is_said_and_sent_before_the_first_request_is_in_it(
    server: EmbeddedServer, eyes: Eyes, meeting: Meeting, tmp_path: Path
) -> None:
    with model_server(eyes) as model:
        given = {"model": "openai:m", "model_base_url": model.url, "model_api_key": "k"}
        backend = Backend(settings_apart(server, "early", **given), meeting, tmp_path)
        run = backend.client.submit(["What is it?"], schema=TEXT)
        run.send({"type": "state", "word": "green"})
        run.say(PNG)
        with backend.worker():
            assert backend.wait(run.id).output == named(PNG)
    told = [message["content"] for message in run.asked(0)["messages"]]
    assert told[-2] == '## Data: †state (merge)\n{"word":"green"}'


def test_a_latent_call_is_shown_a_file_that_was_said_after_its_run_was_read(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path
) -> None:
    latent = {"_tool": "look", "_outputPath": "†state.seen"}

    def answer(body: Any) -> Reply:
        said = json.dumps(body["messages"])
        if "calls" not in body["response_format"]["json_schema"]["schema"]["properties"]:
            return streamed(json.dumps({"output": "a picture" if "image_url" in said else "nothing"}))
        if "# Tick" not in said:
            return streamed(json.dumps({"calls": [latent], "output": "†state.seen"}))
        again = {**latent, "_outputPath": "†state.again"}
        return streamed(json.dumps({"calls": [again], "output": "†state.again"}))

    with model_server(answer) as model:
        given = {"model": "openai:m", "model_base_url": model.url, "model_api_key": "k"}
        backend = Backend(settings_apart(server, "latent", **given), meeting, tmp_path)
        with backend.worker():
            run = backend.client.submit(["Look."], schema=TEXT, tools={"look": {"_output": TEXT}})
            assert backend.wait(run.id).output == "nothing"
            run.say(PNG)
            assert backend.wait(run.id).output == "a picture"


def test_delegates_and_their_child_runs_are_shown_the_files_of_their_definitions(seeing: Backend, eyes: Eyes) -> None:
    plain = {"context": [showing("cat")], "schema": TEXT}
    delegates = {"plain": plain, "looping": {**plain, "tools": ["echo"]}}
    calls = [
        {"_tool": f"ask_{name}", "_delegate": name, "_outputPath": f"†state.{name}"} for name in ("plain", "looping")
    ]
    run = seeing.client.submit([], {"calls": calls}, delegates=delegates, files={"cat": PNG})
    assert seeing.wait(run.id).data()["state"] == {"plain": named(PNG), "looping": named(PNG)}


def test_each_file_of_a_run_is_had_by_the_delegates_of_each_instance(seeing: Backend, eyes: Eyes) -> None:
    delegates = {"plain": {"context": [showing("cat")], "schema": TEXT}}
    call = {"_tool": "ask", "_delegate": "plain", "_outputPath": "†state.seen", "_instance": "*"}
    context = [{"type": "state", "_instance": name, "n": 1} for name in "①②"]
    context.append({**showing("dog"), "_instance": "②"})
    files = {"cat": PNG, "dog": LARGE}
    run = seeing.client.submit(context, {"calls": [call]}, delegates=delegates, files=files)
    result = seeing.wait(run.id)
    assert [result.data(name)["state"]["seen"] for name in "①②"] == [named(PNG)] * 2
    assert len(stored(seeing, run)) == 2


def test_the_command_line_gives_files_by_name_and_reads_none_that_a_submission_names(
    seeing: Backend, tmp_path: Path
) -> None:
    path = tmp_path / "cat.png"
    path.write_bytes(PNG)
    document = {"context": [showing("cat")], "schema": TEXT}
    ran = command(seeing, "run", "-", "--json", "--file", f"cat={path}", stdin=document)
    assert (ran.code, ran.json["output"]) == (0, named(PNG))
    submitted = command(seeing, "submit", "-", "--json", "--file", f"cat={path}", stdin=document)
    assert seeing.wait(submitted.json["run"]).output == named(PNG)
    refused = command(seeing, "run", "-", stdin={**document, "context": [showing(str(path))]})
    assert (refused.code, "--file NAME=PATH" in refused.stderr) == (2, True)
    assert command(seeing, "run", "-", "--file", "cat", stdin=document).code == 2
    missing = command(seeing, "run", "-", "--file", f"cat={tmp_path / 'none.png'}", stdin=document)
    assert (missing.code, "no such file" in missing.stderr) == (2, True)


# A server that has thrown keys of a run away: what is read of the run says so, and no repeated submission is accepted
# that would never run.

CONTEXT = [{"type": "state", "_instance": name, "n": name} for name in ("a", "b")]
SOLUTION = {"calls": [{"_tool": "echo", "value": "†state.n", "_gather": True, "_outputPath": "†data.all"}]}


def run_without(backend: Backend, name: str, key: str) -> Run:
    """A run that has ended, of which the server has lost a key."""
    run = backend.client.submit(CONTEXT, SOLUTION, id=name)
    assert backend.wait(run.id).status == "completed"
    backend.redis.delete(getattr(Keys(backend.settings.key_prefix, run.id), key))
    return backend.client.run_of(run.id)


def outcome(read: Callable[[], Any]) -> str:
    """What comes of reading: how it went on, or which error it was."""
    try:
        return str(read())
    except (RunBroken, RunNotFound) as error:
        return type(error).__name__


TABLE = {
    "log": ("RunBroken", "RunBroken", "RunBroken"),
    "statuses": ("completed", "RunBroken", "RunBroken"),
    "definition": ("RunBroken", "RunBroken", "RunBroken"),
    "state": ("RunNotFound", "RunNotFound", "completed"),
    "lanes": ("completed", "completed", "completed"),
    "instances": ("completed", "completed", "completed"),
    "gathers": ("completed", "completed", "completed"),
    "codes": ("completed", "completed", "completed"),
    "calls": ("completed", "completed", "completed"),
}


@pytest.mark.parametrize("key", TABLE)
def test_what_is_read_of_a_run_and_its_repeated_submission_notice_a_lost_key(backend: Backend, key: str) -> None:
    result, waited, again = TABLE[key]
    run = run_without(backend, f"lost-{key}", key)
    assert outcome(lambda: run.result().status) == result
    if key != "state":  # nothing says then that there was a run, but for its statuses
        assert outcome(lambda: run.wait(timeout_seconds=20).status) == waited
    assert outcome(lambda: len(list(run.export())) > 1 and run.result().status) == result
    assert outcome(lambda: backend.wait(backend.client.submit(CONTEXT, SOLUTION, id=run.id).id).status) == again


def test_the_command_that_exports_a_broken_run_fails_and_says_what_is_gone(backend: Backend) -> None:
    run = run_without(backend, "lost-on-export", "log")
    done = acts("export", run.id, env=backend.settings.to_environment())
    assert (done.code, done.stdout) == (4, "")
    assert "BROKEN" in done.stderr
    assert "log" in done.stderr


@pytest.fixture
def evicting(own: Backend) -> Iterator[Backend]:
    """A server that throws keys away when it is full."""
    before: Any = own.redis.config_get("maxmemory-policy")
    own.redis.config_set("maxmemory-policy", "volatile-lru")
    yield own
    own.redis.config_set("maxmemory-policy", before["maxmemory-policy"])


def test_a_worker_and_a_submission_warn_of_a_server_that_throws_keys_away(evicting: Backend) -> None:
    with evicting.worker():
        heard(evicting, "maxmemory-policy volatile-lru")
    done = acts(
        "submit",
        "-",
        "--json",
        stdin={"context": CONTEXT, "solution": SOLUTION},
        env=evicting.settings.to_environment(),
    )
    assert done.code == 0
    assert "maxmemory-policy volatile-lru" in done.stderr
