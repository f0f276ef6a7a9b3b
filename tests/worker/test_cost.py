"""The cost that a check foretells is what a run publishes (SPEC R6.7)."""

from __future__ import annotations

from typing import Any

from .backend import Backend


def published(backend: Backend, run_id: str, commands: list[str]) -> int:
    """How many tasks of a run were put on queues, by the commands that the server has seen."""
    return sum(command.startswith("LPUSH ") and run_id in command for command in commands)


def test_a_run_publishes_the_tasks_that_its_plan_foretells(backend: Backend) -> None:
    context: list[dict[str, Any]] = [{"type": "input", "text": "Bonjour", "_instance": name} for name in "①②"]
    calls: list[dict[str, Any]] = [
        {"_tool": "add", "a": 1, "_outputPath": "†data.one"},
        {"_tool": "remoteAdd", "a": "†data.one", "b": 1, "_outputPath": "†data.two"},
        {"_tool": "echo", "value": 1},
        *({"_tool": "echo", "value": "†data.two", "_instance": name, "_outputPath": "†state.seen"} for name in "①②"),
        {"_tool": "translate", "t": "†input.text", "_instance": "①", "_delegate": "french", "_outputPath": "english"},
    ]
    value = {
        "context": context,
        "solution": {"calls": calls},
        "tools": {"translate": {"_delegate": {}}},
        "delegates": {"french": {"context": []}},
    }
    cost = backend.client.check(value).cost
    assert (cost.tasks, cost.queued_activities, cost.delegate_requests) == (3 + 1 + 2 + 2, 1, 1)
    assert cost.wake_ups == 2
    with backend.redis.monitor() as monitor:  # type: ignore[no-untyped-call]  # redis leaves it untyped
        run = backend.client.submit_document(value)
        assert backend.wait(run.id).status == "completed"
        backend.redis.echo("that was all")
        commands: list[str] = []
        while not commands or "that was all" not in commands[-1]:
            commands.append(monitor.next_command()["command"])
    assert cost.tasks <= published(backend, run.id, commands) <= cost.tasks + cost.wake_ups
