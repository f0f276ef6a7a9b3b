"""A server that takes no writes for a while - its disk is full, its replicas are away - is waited for."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis import Redis

from acts_celery import InfrastructureError
from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.store.connections import NotNow, connect, redis_errors

from .backend import Backend, Meeting, meeting_url, settings_for


def test_what_calls_have_done_while_the_log_refuses_it_is_written_once_it_does_not(tmp_path: Path) -> None:
    with EmbeddedServer() as broker, EmbeddedServer() as log:
        settings = settings_for(broker, redis_url=log.redis_url)
        backend = Backend(settings, Meeting(meeting_url(broker)), tmp_path)
        with backend.worker(), Redis.from_url(log.redis_url) as admin:
            calls = [
                {"_tool": "waitAtGate", "gate": "refused", "value": number, "_outputPath": f"†state.v{number}"}
                for number in range(10)
            ]
            run = backend.client.submit(solution={"calls": calls}).id
            for _ in calls:
                backend.meeting.take("at:refused")
            admin.config_set("min-replicas-to-write", 1)
            backend.meeting.open_gate("refused")
            with redis_errors(settings), pytest.raises(NotNow), connect(settings) as ours:
                ours.set("anything", 1)
            with pytest.raises(InfrastructureError, match=r"takes nothing at the moment .*replicas \(NOREPLICAS\)"):
                backend.client.submit(solution={"calls": calls})
            admin.config_set("min-replicas-to-write", 0)
            assert backend.wait(run).data()["state"] == {f"v{number}": number for number in range(10)}
            assert backend.meeting.count("at:refused") == 0, "no call was carried out twice"
            assert "unexpected" not in backend.log.read_text()
