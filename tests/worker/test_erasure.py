"""Deleting what a run holds of some of its instances (`acts delete RUN --instance I`)."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from acts_celery import DeadLetter, InstanceNotFound, RunOver
from acts_celery.worker.broker.attempts import CallId
from acts_celery.worker.broker.messages import TaskMessage
from acts_celery.worker.client.deleting import Eraser
from acts_celery.worker.errors import InstanceDeleted
from acts_celery.worker.store.keys import Keys
from acts_celery.worker.store.log import History
from acts_celery.worker.store.state import RunState
from acts_celery.worker.ui import Page

from .backend import Backend, Meeting, settings_apart
from .test_control_cli import command

_names = count()


@pytest.fixture
def secret() -> str:
    return f"private-{next(_names)}"


def people(*names: str, secret: str) -> list[dict[str, Any]]:
    """Each with a text of its own; that of Ann is the secret."""
    texts = {name: secret if name == "ann" else f"text of {name}" for name in names}
    return [{"type": "state", "_instance": name, "text": text} for name, text in texts.items()]


PLAN = {
    "type": "plan",
    "calls": [
        {"_tool": "echo", "value": "†state.text", "_outputPath": "†state.copy"},
        {"_tool": "echo", "value": ["†state.copy"], "_outputPath": "†state.list"},
    ],
}


def everything(backend: Backend, run: str) -> bytes:
    """Every byte that the server has of a run, as it would write it into a snapshot."""
    return b"".join(backend.redis.dump(key) or b"" for key in backend.redis.scan_iter(f"*{{{run}}}*"))


def test_nothing_of_the_instance_is_left_in_the_keys_of_the_run_and_the_run_says_that_it_was_deleted(
    backend: Backend, secret: str
) -> None:
    run = backend.client.submit_document({"context": [*people("ann", "bob", "eve", secret=secret), PLAN]})
    before = backend.wait(run.id)
    backend.redis.config_set("rdbcompression", "no")
    assert secret.encode() in everything(backend, run.id)
    times = {key: backend.redis.pttl(key) for key in backend.keys(run.id)}
    told = command(backend, "delete", run.id, "--instance", "ann", "--json", afresh=True)
    assert (told.code, told.json["instances"], told.json["remains"]) == (0, ["ann"], [])
    assert told.json["entries"] == 3  # what it was submitted with, and two calls
    assert secret.encode() not in everything(backend, run.id)
    after = run.result()
    assert after.instance_status == {"bob": "completed", "eve": "completed", "ann": "deleted"}
    assert after.instances == {name: before.instances[name] for name in ("bob", "eve")}
    page = Page(backend.redis, backend.settings)
    listed = page.answer(f"runs/{run.id}/instances", {"status": "deleted"})
    assert [each["instance"] for each in listed["instances"]] == ["ann"]
    with pytest.raises(InstanceDeleted):
        page.answer(f"runs/{run.id}/instance", {"name": "ann"})
    assert command(backend, "show", run.id).code == 0
    for arguments in (("show", run.id, "--instance", "ann"), ("log", run.id, "--instance", "ann")):
        gone = command(backend, *arguments)
        assert (gone.code, "was deleted" in gone.stderr) == (4, True), gone
    with pytest.raises(InstanceDeleted):
        run.explain("state.copy", instance="ann")
    assert "deleted by" in command(backend, "log", run.id, "--audit").stdout
    if any(left > 0 for left in times.values()):  # the run was given its expiry before
        assert backend.redis.pttl(Keys(backend.settings.key_prefix, run.id).log) > 0
    assert [row["instance"] for table, row in backend.client.export_rows(run=run.id) if table == "calls"] == [
        *["bob"] * 2,
        *["eve"] * 2,
    ]
    again = command(backend, "delete", run.id, "--instance", "ann")
    assert (again.code, "was deleted" in again.stderr) == (4, True)


def test_a_run_of_which_an_instance_was_deleted_is_forked_exported_and_goes_on(backend: Backend, secret: str) -> None:
    run = backend.client.submit_document({"context": [*people("ann", "bob", secret=secret), PLAN]})
    backend.wait(run.id)
    run.delete_instances("ann")
    fork = run.fork()
    assert backend.wait(fork.id).data("bob")["state"]["copy"] == "text of bob"
    run.amend([{"_tool": "echo", "value": "†state.copy", "_instance": "bob", "_outputPath": "†state.more"}], add=True)
    result = backend.wait(run.id)
    assert (result.data("bob")["state"]["more"], result.instance_status["ann"]) == ("text of bob", "deleted")
    lines = list(run.export())
    run.delete()
    assert backend.client.import_run(lines).result().instance_status["ann"] == "deleted"


def test_what_gather_calls_have_read_stays_and_is_said(backend: Backend, secret: str) -> None:
    gather = {"_tool": "echo", "value": "†state.text", "_gather": True, "_outputPath": "†state.all", "_instance": None}
    calls = [{key: value for key, value in gather.items() if value is not None}]
    run = backend.client.submit(people("ann", "bob", secret=secret), {"calls": calls})
    result = backend.wait(run.id)
    assert result.status == "completed", result
    told = command(backend, "delete", run.id, "--instance", "ann")
    assert told.stdout.splitlines()[1:] == ["stays: what call 0 (echo) has gathered, and what was made of that"]


def test_while_the_run_is_under_way_nothing_of_it_is_deleted(backend: Backend, meeting: Meeting, secret: str) -> None:
    calls = [{"_tool": "waitAtGate", "gate": secret, "value": 1, "_instance": "ann", "_outputPath": "†state.a"}]
    run = backend.client.submit(people("ann", "bob", secret=secret), {"calls": calls})
    with pytest.raises(RunOver, match="cancel it before"):
        run.delete_instances("ann")
    run.cancel()
    with pytest.raises(InstanceNotFound, match="did you mean 'ann'"):
        run.delete_instances("anna")
    run.delete_instances("ann")
    meeting.open_gate(secret)
    assert run.result().instance_status == {"bob": "completed", "ann": "deleted"}


def test_what_all_runs_hold_of_a_person_is_listed_and_then_deleted(backend: Backend, secret: str) -> None:
    name, ann = f"over {secret}", f"ann {secret}"
    context = [{"type": "state", "_instance": one, "text": one} for one in (ann, "bob")]
    runs = [backend.client.submit_document({"context": [*context, PLAN]}, name=name).id for _ in range(2)]
    other = backend.client.submit_document({"context": [*context[1:], PLAN]}, name=name).id
    for run in (*runs, other):
        backend.wait(run)
    open_ = backend.client.submit_document({"context": [*context, PLAN], "config": {"approve": ["*"]}}).id
    listed = command(backend, "delete", "--instance", ann, "--json")
    assert (listed.code, listed.json["deleted"], listed.json["kept"]) == (0, False, {"under way": 1})
    assert [each["run"] for each in listed.json["runs"]] == [*reversed(runs)]
    assert ann.encode() in everything(backend, runs[0])
    told = command(backend, "delete", "--instance", ann, "--instance", "nobody", "--name", name, "--yes")
    assert (told.code, told.stderr) == (0, "")
    assert "deleted of 2 runs" in told.stdout.splitlines()
    assert any("backups" in line for line in told.stdout.splitlines())
    assert backend.client.run(runs[0]).result().instance_status == {"bob": "completed", ann: "deleted"}
    assert backend.client.run(other).result().instance_status == {"bob": "completed"}
    again = command(backend, "delete", "--instance", ann, afresh=True)
    said = ["would delete of 0 runs", "nothing is deleted of 1 run under way: end or cancel them first"]
    assert again.stdout.splitlines() == said
    backend.client.run(open_).cancel()
    assert [each.run for each in backend.client.erasable_runs([ann], status="cancelled").runs] == [open_]
    refused = command(backend, "delete", "--instance", ann, "--largest")
    assert (refused.code, "with --instance go no --free" in refused.stderr) == (2, True)


def test_a_run_that_goes_on_meanwhile_and_one_that_is_gone_are_left_out(backend: Backend, secret: str) -> None:
    document = {"context": [*people(secret, "bob", secret=secret), PLAN]}
    gone, goes_on, last = (backend.client.submit_document(document) for _ in range(3))
    for run in (gone, goes_on, last):
        backend.wait(run.id)
    found = backend.client.erasable_runs([secret])
    assert [each.run for each in found.runs] == [last.id, goes_on.id, gone.id]
    gone.delete()
    held = {"_tool": "echo", "value": 1, "_outputPath": "†state.more"}
    goes_on.amend([held, {"_tool": "waitAtGate", "gate": secret, "_outputPath": "†state.gate"}], add=True)
    assert [each.run for each in backend.client.erase_instances(found.runs)] == [last.id]
    goes_on.cancel()
    backend.meeting.open_gate(secret)


def test_what_is_added_meanwhile_is_not_lost_and_the_log_stays_as_it_was(backend: Backend, secret: str) -> None:
    run = backend.client.submit_document({"context": [*people("ann", "bob", secret=secret), PLAN]})
    backend.wait(run.id)
    eraser = Eraser(run.id, backend.redis, backend.settings)
    _, last = eraser._write_anew(frozenset(["ann"]), RunState(History(backend.redis, eraser._keys).definition()), set())
    run.amend([{"_tool": "echo", "value": "†state.copy", "_instance": "ann", "_outputPath": "†state.more"}], add=True)
    after = backend.wait(run.id)
    with pytest.raises(RunOver, match="added to it meanwhile"):
        eraser._put_in_place(["ann"], last, [], {})
    assert run.result() == after
    assert Keys(backend.settings.key_prefix, run.id).log_kept not in backend.keys(run.id)
    run.delete_instances("ann")
    assert run.result().instance_status == {"bob": "completed", "ann": "deleted"}


def test_what_was_sent_and_forgotten_and_its_dead_letters_go_too(meeting: Meeting, server: Any, tmp_path: Any) -> None:
    backend = Backend(settings_apart(server, "erasure"), meeting, tmp_path)
    calls = [{"_tool": "echo", "value": "†state.text", "_instance": name} for name in ("ann", "bob")]
    run = backend.client.submit(people("ann", "bob", secret="hidden"), {"calls": calls})
    run.cancel() if run.status()["status"] == "running" else None
    task = TaskMessage("acts.execute_background", "background", b"\x80", "-", is_forgotten=True)
    for name in ("ann", "bob"):
        letter = DeadLetter(CallId(run.id, name, 0), task, "E", "", 1, "2099-11-21T00:00:00.000+00:00")
        backend.client.dead_letters().add(letter)
    erased = run.delete_instances("ann")
    assert erased.dead_letters == 1
    assert [letter.call.instance for letter in backend.client.dead_letters().list()] == ["bob"]
    assert b"hidden" not in everything(backend, run.id)
