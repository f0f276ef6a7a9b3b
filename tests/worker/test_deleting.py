"""What is deleted: runs, instances of them (SPEC R11), and nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from redis import Redis

from acts_celery import Client, DeadLetter, InfrastructureError, InstanceNotFound, Run, RunOver
from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.broker.attempts import CallId
from acts_celery.worker.broker.messages import TaskMessage
from acts_celery.worker.client.deleting import Deleter
from acts_celery.worker.client.deployments import RunFilter
from acts_celery.worker.errors import InstanceDeleted
from acts_celery.worker.store.keys import Keys, active_runs, due_runs, ended_runs
from acts_celery.worker.store.run_list import Parent
from acts_celery.worker.store.run_writer import LogRewrite, expire_runs
from acts_celery.worker.store.scripts import server_ms
from acts_celery.worker.ui import Page

from .backend import Backend, Meeting, heard, settings_apart, settings_for
from .test_control_cli import command

# Deleting runs that are over, one or many (`acts delete`): what goes, what stays, what it says.

DAY_MS = 86_400_000
_prefixes = count()


@pytest.fixture
def kept(server: EmbeddedServer, meeting: Meeting, tmp_path: Any) -> Iterator[Backend]:
    """A backend without a worker, whose log holds nothing."""
    backend = Backend(settings_for(server, key_prefix=f"deleting{next(_prefixes)}"), meeting, tmp_path)
    yield backend
    backend.client.close()


def ended(backend: Backend, name: str, *, days: float = 0, size: int = 0, status: str = "completed") -> str:
    """A run that ended so long ago."""
    run = backend.client.submit([{"type": "input", "text": "x" * size}], {"calls": []}, name=name).id
    keys = Keys(backend.settings.key_prefix, run)
    at = server_ms(backend.redis) - int(days * DAY_MS)
    fields: dict[Any, Any] = {"submitted": at - 1_000, "finished": at, "status": status}
    backend.redis.hset(keys.state, mapping=fields)
    expire_runs(backend.redis, keys.prefix, [run], 10_000)
    return run


def under_way(backend: Backend, name: str) -> str:
    return backend.client.submit(
        solution={"calls": [{"_tool": "add", "a": 1, "_outputPath": "†state.a"}]}, name=name
    ).id


def child_of(backend: Backend, run: str, child: str) -> str:
    """Make an ended run the child of another one."""
    fields: dict[Any, Any] = Parent(CallId(run, None, 0), 1, 1).to_fields()
    backend.redis.hset(Keys(backend.settings.key_prefix, child).state, mapping=fields)
    return child


def left(backend: Backend) -> set[str]:
    return {summary.run for summary in backend.client.runs()}


def test_what_would_be_deleted_is_listed_and_nothing_is_until_it_is_said(kept: Backend) -> None:
    old, new = ended(kept, "tea", days=40, size=30_000), ended(kept, "tea", days=2)
    failed, going = ended(kept, "coffee", days=50, status="failed"), under_way(kept, "tea")
    told = command(kept, "delete", "--older-than", "30d", "--name", "tea", "--json")
    assert (told.code, told.json["deleted"], told.json["kept"]) == (0, False, {"under way": 1})
    (listed,) = told.json["runs"]
    assert (listed["run"], listed["status"], listed["bytes"]) == (old, "completed", told.json["bytes"])
    assert 30_000 < listed["bytes"] < 60_000
    shown = command(kept, "delete", "--older-than", "30d")
    lines = shown.stdout.splitlines()
    assert [line.split()[0] for line in lines] == [failed, old, "would", "stay:"]
    assert lines[0].endswith(f"coffee  failed  50 d ago  {lines[0].split('  ')[-1]}")
    assert (lines[2].startswith("would delete 2 runs, "), lines[3]) == (True, "stay: 1 under way")
    assert shown.error_lines == ["acts: nothing is deleted yet: with --yes it is"]
    assert left(kept) == {old, new, failed, going}
    done = command(kept, "delete", "--older-than", "30d", "--status", "completed", "--yes", "--json").json
    assert (done["deleted"], [run["run"] for run in done["runs"]]) == (True, [old])
    assert done["bytes"] >= listed["bytes"]
    assert left(kept) == {new, failed, going}
    assert kept.keys(old) == set()
    for listing in (active_runs, ended_runs, due_runs):
        assert kept.redis.zscore(listing(kept.settings.key_prefix), old) is None


def test_as_many_go_as_free_so_much_the_oldest_or_the_largest_first(kept: Backend) -> None:
    runs = [ended(kept, "", days=30 - number, size=size) for number, size in enumerate((10, 50_000, 90_000, 10))]
    chosen = kept.client.deletable_runs(free_bytes=40_000)
    assert [run.run for run in chosen.runs] == runs[:2]
    assert [run.run for run in kept.client.deletable_runs(free_bytes=90_000, is_largest_first=True).runs] == [runs[2]]
    told = command(kept, "delete", "--free", "40kB", "--largest", "--yes")
    assert (told.code, told.stdout.startswith("deleted 1 run, ")) == (0, True)
    assert left(kept) == {runs[0], runs[1], runs[3]}


def test_child_runs_and_dead_letters_go_with_their_run(kept: Backend) -> None:
    run = ended(kept, "parent")
    below = child_of(kept, run, ended(kept, "child"))
    lowest = child_of(kept, below, ended(kept, "child of child"))
    task = TaskMessage("acts.execute_background", "background", b"\x80", "-", is_forgotten=True)
    for owner in (lowest, "another"):
        letter = DeadLetter(CallId(owner, None, 0), task, "E", "", 1, "2099-11-21T00:00:00.000+00:00")
        kept.client.dead_letters().add(letter)
    assert command(kept, "delete", "--name", "child", "--json").json["runs"] == []
    told = command(kept, "delete", "--name", "parent", "--yes").stdout
    assert told.startswith("deleted 1 run (2 child runs, 1 dead letter), ")
    assert left(kept) == set()
    assert [letter.call.run for letter in kept.client.dead_letters().list()] == ["another"]


def test_one_run_takes_its_child_runs_along_and_stays_while_one_is_under_way(kept: Backend) -> None:
    started: Any = kept.client.submit(solution={"calls": []}, id="family-1").id
    expire_runs(kept.redis, kept.settings.key_prefix, [started], 10_000)
    child = kept.client.submit(solution={"calls": [{"_tool": "add", "a": 1, "_outputPath": "†state.a"}]}, id="family-2")
    other = kept.client.submit(solution={"calls": []}, id="family-3").id
    child_of(kept, started, child.id)
    refused = command(kept, "delete", started)
    assert (refused.code, "family-2, which run family-1 has begun, is running" in refused.stderr) == (4, True)
    assert command(kept, "delete", "--name", "nothing", "--status", "completed", "--json").json["runs"] == []
    assert kept.client.deletable_runs(status="completed").kept == {"under way": 1}
    child.cancel()
    child_of(kept, under_way(kept, "above"), other)
    with pytest.raises(RunOver, match="answers a call of run"):
        kept.client.run(other).delete()
    assert other not in {run.run for run in kept.client.deletable_runs().runs}
    told = command(kept, "delete", started, "--json").json
    assert (told["run"], told["deleted"], told["children"], told["bytes"] > 0) == (started, True, ["family-2"], True)
    assert not {started, child.id} & left(kept)


def test_a_run_with_calls_that_are_not_done_stays_unless_it_is_named(kept: Backend) -> None:
    run = ended(kept, "outstanding")
    kept.redis.hset(Keys(kept.settings.key_prefix, run).outbox, "\x1f0", "sent:1:0:q")
    told = command(kept, "delete", "--name", "outstanding", "--yes")
    assert told.stdout == "deleted 0 runs, 0 bytes\nstay: 1 fire-and-forget calls not done\n"
    named = command(kept, "delete", run)
    assert (named.code, "1 fire-and-forget call not done, and not sent again now" in named.stdout) == (0, True)


def test_a_run_that_goes_on_meanwhile_stays(kept: Backend) -> None:
    run = ended(kept, "reopened")
    chosen = kept.client.deletable_runs()
    kept.redis.hset(Keys(kept.settings.key_prefix, run).state, "status", "paused")
    assert list(kept.client.delete_runs(chosen.runs)) == []
    assert kept.client.run(run).status()["status"] == "paused"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name a run, or say which"),
        (("latest", "--older-than", "3d"), "name a run, or say which"),
        (("--older-than", "30x"), "'30x' is no duration such as 30d"),
        (("--free", "-1"), "'-1' is no size such as 500MB"),
    ],
)
def test_what_is_not_meant_clearly_is_refused(kept: Backend, arguments: tuple[str, ...], said: str) -> None:
    told = command(kept, "delete", *arguments)
    assert (told.code, said in told.stderr) == (2, True), told.stderr


def test_a_server_that_goes_away_is_an_error_and_the_same_command_goes_on(meeting: Meeting, tmp_path: Any) -> None:
    with EmbeddedServer() as server:
        backend = Backend(settings_for(server), meeting, tmp_path)
        runs = [ended(backend, "", days=number) for number in range(30)]
        chosen = backend.client.deletable_runs()
        deleting = backend.client.delete_runs(chosen.runs)
        assert next(deleting).run == runs[-1]
        assert len(left(backend)) == 10
        assert list(deleting)[-1].run == runs[0]
        run = ended(backend, "last")
        backend.redis.config_set("maxmemory", 1)  # a server that is full is where one deletes
        with pytest.raises(InfrastructureError, match="acts delete --free 500MB"):
            ended(backend, "too much")
        backend.client.run(run).delete()
        assert backend.keys(run) == set()
    assert command(backend, "delete", "--older-than", "1s", "--yes").code == 3


@pytest.mark.nightly
def test_many_runs_are_deleted_without_holding_up_the_server_and_in_bounded_steps() -> None:
    with EmbeddedServer() as server, Client(settings_for(server)) as client:
        redis, prefix = Redis.from_url(client.settings.require_redis()), client.settings.key_prefix
        for start in range(0, 20_000, 1_000):
            with redis.pipeline(transaction=False) as pipeline:
                for number in range(start, start + 1_000):
                    keys = Keys(prefix, f"r{number}")
                    pipeline.hset(keys.state, mapping={"status": "completed", "submitted": 1, "finished": number})
                    for _ in range(20):
                        pipeline.xadd(keys.log, {"m": b"x" * 200})
                    pipeline.zadd(ended_runs(prefix), {keys.run: number})
                pipeline.execute()
        wide = Keys(prefix, "wide")
        redis.hset(wide.state, mapping={"status": "completed", "submitted": 1, "finished": 30_000})
        redis.zadd(ended_runs(prefix), {wide.run: 30_000})
        for start in range(0, 200_000, 10_000):
            with redis.pipeline(transaction=False) as pipeline:
                pipeline.hset(wide.calls, mapping={f"{number}\x1f0": "done" for number in range(start, start + 10_000)})
                pipeline.rpush(wide.instances, *range(start, start + 10_000))
                for number in range(start, start + 10_000):
                    pipeline.xadd(wide.log, {"l": number, "m": b"x" * 100})
                pipeline.execute()
        redis.config_resetstat()
        client.run_of("wide").delete()
        assert redis.info("commandstats")["cmdstat_evalsha"]["usec_per_call"] < 20_000  # twice: measured, and deleted
        redis.config_resetstat()
        chosen = Deleter(redis, client.settings).choose(RunFilter())
        assert (len(chosen.runs), chosen.runs[0].run) == (20_000, "r0")
        before = redis.info("memory")["used_memory"]
        gone = list(client.delete_runs(chosen.runs))
        assert len(gone) == 20_000
        freed = before - redis.info("memory")["used_memory"]
        assert 0.6 < chosen.bytes / freed < 1.4
        assert redis.info("commandstats")["cmdstat_evalsha"]["usec_per_call"] < 500
        assert [key for key in redis.scan_iter(f"{prefix}:*{{*") if b"dead" not in key] == []


def test_a_run_of_another_version_is_shown_and_deleted_only_when_that_is_said(kept: Backend) -> None:
    run, other = under_way(kept, "foreign"), under_way(kept, "ours")
    kept.redis.hset(Keys(kept.settings.key_prefix, run).state, "format", 99)
    assert [found.run for found in kept.client.runs(status="foreign")] == [run]
    said = json.loads(command(kept, "doctor", "--json").stdout)
    (layer,) = (layer for layer in said["layers"] if layer["layer"] == "runs")
    assert "1 run of another version" in json.dumps(layer)
    with pytest.raises(RunOver, match="has format 99, which this version does not read"):
        kept.client.run(run).delete()
    with pytest.raises(RunOver, match="cancel it"):
        kept.client.run(other).delete(foreign=True)
    gone = command(kept, "delete", run, "--foreign")
    assert gone.code == 0, gone.stderr
    assert list(kept.client.runs(status="foreign")) == []
    assert kept.keys(run) == set()


def test_the_late_result_of_a_deleted_run_is_not_taken_by_another_one_under_its_id(backend: Backend) -> None:
    def submitted(gate: str) -> Run:
        calls = [{"_tool": "waitFar", "gate": gate, "_outputPath": "†state.a"}]
        run = backend.client.submit(solution={"calls": calls}, id="late-result")
        backend.meeting.take(f"at:{gate}")
        return run

    backend.redis.delete(*backend.keys(submitted("deleted").id))  # while a worker that hears of nothing is at work
    run = submitted("anew")
    backend.meeting.open_gate("deleted")
    heard(backend, f"a result of {run.id} - 0 is refused")
    assert run.status()["calls"] == {"running": 1}
    backend.meeting.open_gate("anew")
    assert backend.wait(run.id).data() == {"state": {"a": "anew"}}


def test_the_late_report_of_a_deleted_run_does_not_end_what_another_one_under_its_id_has_sent(backend: Backend) -> None:
    def submitted(gate: str) -> Run:
        run = backend.client.submit(solution={"calls": [{"_tool": "waitFar", "gate": gate}]}, id="late-report")
        backend.meeting.take(f"at:{gate}")
        return run

    backend.redis.delete(*backend.keys(submitted("old").id))  # while a worker that hears of nothing is at work
    run = submitted("new")
    backend.meeting.open_gate("old")
    heard(backend, f"run {run.id} was deleted and is another")
    assert run.status()["background"]["outstanding"] == 1
    backend.meeting.open_gate("new")
    while run.status()["background"]["done"] != 1:
        time.sleep(0.02)


def test_an_id_that_is_used_again_is_another_run(backend: Backend) -> None:
    for value in ("first", "second"):
        calls = [{"_tool": "echo", "value": "†state.x", "_outputPath": f"†state.{value}"}]
        states = [{"type": "state", "x": value}, {"type": "state", "_instance": "①", "y": value}]
        run = backend.client.submit([*states, {"type": "plan", "calls": calls}], id="used-again")
        assert backend.wait(run.id).data("①") == {"state": {"x": value, "y": value, value: value}}
        run.delete()


def test_the_calls_of_a_run_with_the_id_of_a_cancelled_one_are_carried_out(backend: Backend) -> None:
    calls = [{"_tool": "remoteAdd", "a": 1, "b": 2, "_outputPath": "†state.a"}]
    cancelled = backend.client.submit(solution={"calls": calls}, config={"approve": ["*"]}, id="cancelled-before")
    cancelled.cancel()
    cancelled.delete()
    run = backend.client.submit(solution={"calls": calls}, id="cancelled-before")
    assert backend.wait(run.id).data() == {"state": {"a": {"sum": 3}}}


# Deleting what a run holds of some of its instances (`acts delete RUN --instance I`).

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
    told = command(backend, "delete", run.id, "--instance", "ann", "--json")
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
    assert told.stdout.splitlines()[1:] == ["stays: what call 0 (echo) has gathered, and what was made from it"]


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
    again = command(backend, "delete", "--instance", ann)
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


def test_what_is_added_meanwhile_is_not_lost_and_the_log_stays_as_it_was(
    backend: Backend, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = backend.client.submit_document({"context": [*people("ann", "bob", secret=secret), PLAN]})
    backend.wait(run.id)
    keys, replace = Keys(backend.settings.key_prefix, run.id), LogRewrite.replace
    call = {"_tool": "echo", "value": "†state.copy", "_instance": "ann", "_outputPath": "†state.more"}
    after = []

    def amend_first(rewrite: LogRewrite, *arguments: Any) -> bool:
        run.amend([call], add=True)
        after.append(backend.wait(run.id))
        return replace(rewrite, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(LogRewrite, "replace", amend_first)
        with pytest.raises(RunOver, match="added to it meanwhile"):
            run.delete_instances("ann")
    assert [run.result()] == after
    assert keys.log_kept not in backend.keys(run.id)
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
