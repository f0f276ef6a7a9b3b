"""A run of 100,000 instances: each answer about it is small, and comes soon."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from tests.worker.backend import Backend

from .asking import call, on_stdio

pytestmark = pytest.mark.nightly

INSTANCES = 100_000
SECONDS = 5.0
MOST_BYTES = 100_000


def test_a_run_of_100_000_instances_is_answered_for_as_one_of_ten(backend: Backend) -> None:
    plan = {"type": "plan", "calls": [{"_tool": "echo", "value": "†state.n", "_outputPath": "†state.a"}]}
    instances = [{"type": "state", "_instance": f"i{number}", "n": number} for number in range(INSTANCES)]
    run = backend.client.submit([plan, *instances]).id
    backend.client.run(run).pause()

    async def ask() -> None:
        async with on_stdio(backend) as client:
            for tool, more in (
                ("status", {}),
                ("result", {}),
                ("result", {"instance": "i7"}),
                ("result", {"instance": "i99999", "path": "state.n"}),
                ("instances", {}),
                ("held", {}),
                ("runs", {}),
            ):
                began = time.monotonic()
                found = await call(client, tool, **({"run": run} if tool != "runs" else {}), **more)
                assert time.monotonic() - began < SECONDS, tool
                assert found
                assert len(json.dumps(found)) < MOST_BYTES, tool

    asyncio.run(ask())
    backend.client.run(run).cancel()
