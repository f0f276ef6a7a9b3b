"""Requests for the loop, with a model that answers what a test lays down (see fixtures/loop_model.py)."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any, Final

import msgpack

from acts_celery import Client, Result, Run
from acts_celery.broker_config import EmbeddedServer

from .backend import ACTIVITIES, FIXTURES, Backend, settings_apart

LOOP_MODEL: Final = FIXTURES / "loop_model.py"
ADD: Final = {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"], "additionalProperties": False}


def loop_settings(server: EmbeddedServer, name: str, **overrides: object) -> Any:
    """Settings with queues of their own, the tests' activities and the model of the loops."""
    given: dict[str, object] = {"activities": (str(ACTIVITIES), str(LOOP_MODEL)), "model": "told:told"}
    return settings_apart(server, name, **(given | overrides))


def answer(*calls: Mapping[str, Any], output: Any = None, **how: Any) -> dict[str, Any]:
    """An answer of the model; `how` it comes: `gate`, `usage`, `text`, `refuses`."""
    return {"answer": {"calls": [dict(call) for call in calls], "output": output}, **how}


class Asked:
    """A request that was submitted, and what its model was asked."""

    def __init__(
        self, backend: Backend, *answers: Mapping[str, Any], client: Client | None = None, **request: Any
    ) -> None:
        """Submit a request whose ticks are answered in this order; `request` are the parts of the submission."""
        self._backend = backend
        self.topic = secrets.token_hex(4)
        self.tell(*answers)
        document = {"schema": {"type": "integer"}, "tools": {"add": ADD}, **request}
        document["context"] = [{"type": "text", "message": f"topic: {self.topic}"}, *document.get("context", [])]
        self.run: Run = (client or backend.client).submit_document(document)

    def tell(self, *answers: Mapping[str, Any]) -> None:
        """Lay down answers for the ticks that follow."""
        for one in answers:
            self._backend.meeting.redis.rpush(f"answers:{self.topic}", json.dumps(one))

    def wait_until_asked(self, tick: int) -> None:
        """Wait until the model is asked for a tick, once for each time that it is."""
        self._backend.meeting.take(f"asked:{self.topic}:{tick}")

    def result(self) -> Result:
        """The result, once the run has ended."""
        return self._backend.wait(self.run.id)

    def messages(self, type_: str) -> list[Mapping[str, Any]]:
        """The messages of a type in the log."""
        return [entry.message for entry in self.run.log() if entry.message["type"] == type_]

    @property
    def asked(self) -> dict[int, int]:
        """How often each tick was asked."""
        found: Any = self._backend.meeting.redis.hgetall(f"asked:{self.topic}")
        return {int(tick): int(times) for tick, times in sorted(found.items())}

    @property
    def requests(self) -> list[dict[str, Any]]:
        """What the model was asked, in order."""
        found: Any = self._backend.meeting.redis.lrange(f"requests:{self.topic}", 0, -1)
        return [msgpack.unpackb(one) for one in found]


def held_call(asked: Asked) -> str:
    """The call that waits for a person, once one does."""
    while not (held := asked.run.held()):
        next(iter(asked.run.log(follow=True)))
    return str(held[0]["call"])
