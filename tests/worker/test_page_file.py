"""`acts show RUN --html FILE`: one file, bounded, written whole, in which nothing of the data is markup."""

from __future__ import annotations

import base64
import errno
import hashlib
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from acts_celery import Run
from acts_celery.worker.cli.options import Failed
from acts_celery.worker.cli.source import write_whole
from acts_celery.worker.ui import Page
from acts_celery.worker.ui import server as documents
from acts_celery.worker.ui.server import MOST_BYTES, document
from tests.acceptance.command import Finished, acts

from .backend import Backend
from .pages import Asking
from .test_page_drawing import HOSTILE


class Parts(HTMLParser):
    """The elements of a page, and the texts of its scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.blocks: list[tuple[str, dict[str, str | None], str]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.blocks.append((tag, dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] in ("script", "style") and self.blocks[-1][2] == "":
            self.blocks[-1] = (*self.blocks[-1][:2], data)

    @property
    def data(self) -> dict[str, Any]:
        """What the page shows."""
        found: dict[str, Any] = json.loads(
            next(text for _, attributes, text in self.blocks if attributes.get("id") == "acts-data")
        )
        return found

    @property
    def answers(self) -> dict[str, Any]:
        """Its answers, by path and query."""
        return {f"{path} {json.dumps(query, sort_keys=True)}": answer for path, query, answer in self.data["answers"]}

    @property
    def policy(self) -> str:
        """What it may load and run."""
        metas = [attributes for tag, attributes in self.elements if tag == "meta"]
        found = next(each["content"] for each in metas if each.get("http-equiv") == "Content-Security-Policy")
        assert found is not None
        return found


def written(backend: Backend, run: Run) -> str:
    return document(Page(backend.redis, backend.settings, reading_seconds=None), run.id)


def command(backend: Backend, *arguments: str) -> Finished:
    return acts(*arguments, env=backend.settings.to_environment())


def failed(backend: Backend, number: int = 5, **parts: Any) -> Run:
    context = [{"type": "state", "_instance": f"i{at}", "name": f"i{at}"} for at in range(number)]
    calls = [{"_tool": "failFor", "instance": "†state.name", "mark": "i3", "_outputPath": "†state.a"}]
    run = backend.client.submit([*context, {"type": "plan", "calls": calls}], **parts)
    backend.wait(run.id)
    return run


def test_the_file_holds_the_answers_of_the_page(backend: Backend) -> None:
    run = failed(backend)
    parts, asking = Parts(written(backend, run)), Asking(backend, run)
    assert parts.data["run"] == run.id
    assert parts.data["sentences"] == []
    answers = parts.answers
    for what, query in (
        ("", {}),
        ("plan", {}),
        ("calls/0", {}),
        ("calls/0", {"status": "failed"}),
        ("instances", {"status": "failed"}),
        ("instance", {"name": "i3"}),
        ("instance", {}),
        ("log", {"instance": "i3"}),
        ("held", {}),
    ):
        key = f"runs/{run.id}/{what}".rstrip("/") + f" {json.dumps(query, sort_keys=True)}"
        now = asking.ask(what, **query)
        assert {**_lasting(answers[key])} == {**_lasting(now)} if isinstance(now, dict) else answers[key] == now


def _lasting(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in ("expires", "duration_seconds")}


def test_the_file_runs_and_loads_nothing_but_what_stands_in_it(backend: Backend) -> None:
    parts = Parts(written(backend, failed(backend)))
    policy = dict(each.strip().split(" ", 1) for each in parts.policy.split(";"))
    assert policy["default-src"] == "'none'"
    for tag in ("script", "style"):
        own = [text for name, attributes, text in parts.blocks if name == tag and attributes.get("type") is None]
        digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in own]
        assert policy[f"{tag}-src"].split() == [f"'sha256-{digest}'" for digest in digests]
        assert own
    assert "unsafe" not in parts.policy
    for tag, attributes in parts.elements:
        assert "src" not in attributes
        assert (attributes.get("href") or "#")[0] == "#" or attributes["href"] == "data:,"
        assert "style" not in attributes
        assert tag not in ("iframe", "object", "embed", "base")


def test_nothing_in_any_text_of_a_run_is_markup(backend: Backend) -> None:
    plain = Parts(written(backend, failed(backend)))
    texts = [text for text in HOSTILE if "\ud800" not in text]
    names = [text for text in texts if not re.search("[\x00-\x1f\x7f-\x9f]", text)]  # those of instances hold none
    context: list[dict[str, Any]] = [
        {"type": "state", "_instance": name, "name": name, "texts": {text: text for text in texts}} for name in names
    ]
    calls: list[dict[str, Any]] = [
        {"_tool": "failFor", "instance": "†state.name", "mark": name, "_outputPath": f"†state.v{at}"}
        for at, name in enumerate(names)
    ]
    calls += [
        {"_tool": "echo", "value": {text: [text]}, "_outputPath": "†state.e", "_reasoningForCall": text}
        for text in texts
    ]
    run = backend.client.submit([*context, {"type": "plan", "calls": calls}], name="</script><b>x", tags=["<i>", "-->"])
    assert backend.wait(run.id).status == "failed"
    html = written(backend, run)
    parts = Parts(html)
    assert [tag for tag, _ in parts.elements] == [tag for tag, _ in plain.elements]
    assert [text for _, attributes, text in parts.blocks if "id" not in attributes] == [
        text for _, attributes, text in plain.blocks if "id" not in attributes
    ]
    data = html[html.index('id="acts-data">') + len('id="acts-data">') :]
    data = data[: data.index("</script>")]
    assert re.search("[<>&\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]", data) is None
    answers = parts.answers
    for name in names:
        found = answers[f"runs/{run.id}/instance {json.dumps({'name': name})}"]
        assert found["data"]["state"]["texts"] == {text: text for text in texts}  # and it is all there


def test_the_file_is_bounded_and_says_what_it_leaves_out(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MOST_BYTES", 700_000)
    context = [{"type": "state", "_instance": f"i{at:03}", "text": "x" * 1_500} for at in range(230)]
    calls = [{"_tool": "echo", "value": "†state.text", "_outputPath": f"†state.c{at}"} for at in range(2)]
    run = backend.client.submit([*context, {"type": "plan", "calls": calls}])
    backend.wait(run.id)
    html = written(backend, run)
    assert 300_000 < len(html.encode()) < 700_000
    said = " ".join(Parts(html).data["sentences"])
    assert re.search(r"This file holds \d+ of 230 instances", said)
    assert "did not fit" in said
    assert f"runs/{run.id}/plan {{}}" in Parts(html).answers
    monkeypatch.undo()
    whole = written(backend, run)
    assert len(whole.encode()) < MOST_BYTES
    assert "This file holds 200 of 230 instances" in " ".join(Parts(whole).data["sentences"])


def test_the_command_writes_the_file_whole_or_not_at_all(backend: Backend, tmp_path: Path) -> None:
    run, file = failed(backend), tmp_path / "run.html"
    done = command(backend, "show", run.id, "--html", str(file))
    assert (done.code, done.stdout.strip()) == (0, f"run {run.id} is in {file}")
    assert Parts(file.read_text()).data["run"] == run.id
    assert [path.name for path in tmp_path.iterdir()] == ["run.html"]
    printed = command(backend, "show", run.id, "--html", "-")
    assert Parts(printed.stdout).data["run"] == run.id
    told = command(backend, "show", run.id, "--html", str(file), "--json")
    assert json.loads(told.stdout) == {"run": run.id, "file": str(file)}
    before = file.read_text()
    for arguments, code in (
        (("show", run.id, "--html", str(tmp_path)), 2),
        (("show", run.id, "--html", str(tmp_path / "no" / "such" / "folder.html")), 3),
        (("show", "no-such-run", "--html", str(file)), 4),
        (("show", run.id, "--html", str(file), "--instance", "i3"), 2),
        (("show", run.id, "--html", str(file), "--mermaid"), 2),
        (("show", run.id, "--html", "-", "--json"), 2),
    ):
        assert command(backend, *arguments).code == code, arguments
    assert file.read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["run.html"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_what_was_in_the_file_stays_where_the_new_one_cannot_be_finished(tmp_path: Path, error: BaseException) -> None:
    file = tmp_path / "run.html"
    file.write_text("the one before")

    def parts() -> Iterator[str]:
        yield "<!doctype html>"
        raise error

    with pytest.raises((KeyboardInterrupt, Failed)):
        write_whole(file, parts())
    assert file.read_text() == "the one before"
    assert list(tmp_path.iterdir()) == [file]
