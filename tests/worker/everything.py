"""Runs that do everything, for logs that are divided between servers or nodes."""

from __future__ import annotations

from acts_celery import Run

from .backend import Backend

INSTANCES = [{"type": "input", "_instance": f"i{number}", "n": number} for number in range(20)]
CALLS = [
    {"_tool": "echo", "value": "†input.n", "_outputPath": "†state.a"},
    {"_tool": "remoteAdd", "a": "†state.a", "b": 1, "_outputPath": "†state.b"},
    {"_tool": "note", "name": "told"},
]


def everything_works(backend: Backend) -> list[Run]:
    """Assert that runs, orders, amendments, forks, explanations, dead letters and the sweep work, with a worker that is
    there; returns ten runs of instances.
    """
    client = backend.client
    runs = [client.submit([*INSTANCES, {"type": "plan", "calls": CALLS}]) for _ in range(10)]
    for run in runs:
        result = backend.wait(run.id)
        assert result.status == "completed"
        assert {name: data["state"]["b"]["sum"] for name, data in result.instances.items()} == {
            f"i{number}": number + 1 for number in range(20)
        }
    run = client.submit(solution={"calls": [{"_tool": "waitAtGate", "gate": "g", "_outputPath": "†state.g"}]})
    backend.meeting.take("at:g")
    run.pause()
    run.amend([{"_tool": "echo", "value": 1, "_outputPath": "†state.x"}], add=True)
    run.resume()
    backend.meeting.open_gate("g")
    assert backend.wait(run.id).data()["state"]["x"] == 1
    assert backend.wait(run.fork().id).status == "completed"
    assert run.explain("†state.x").value == 1
    failing = client.submit(solution={"calls": [{"_tool": "explode"}]})
    assert backend.wait(failing.id).status == "completed"
    letters = client.dead_letters()
    while not letters.list():
        backend.meeting.redis.wait(1, 50)  # a cluster has no events of all its keys
    letters.resend([letters.list()[0].id])
    return runs
