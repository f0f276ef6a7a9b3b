"""The steps in which a run is changed in many lanes while it is held: paused from the first to the last of them.

See lua/amend.lua. A client that begins takes over from one that died on the way, and goes on with what that has
written.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any, Final

from redis import Redis

from acts_celery.protocol.engine.solution_output import holds_references, output_fault
from acts_celery.worker.batches import batches
from acts_celery.worker.errors import BeingAmended, RunNotFound, RunOver
from acts_celery.worker.storage.audit import AuditRecord
from acts_celery.worker.storage.child_links import PARENT
from acts_celery.worker.storage.history import History
from acts_celery.worker.storage.keys import ENDED, Keys, active_runs
from acts_celery.worker.storage.run_state import RunState
from acts_celery.worker.storage.scripts import Script

_AT_ONCE: Final = 200


def refuse_a_copy(redis: Redis, keys: Keys) -> None:
    """Raise `RunOver` for a run that is only read here, or that answers another one's call (SPEC R11.7)."""
    fields: Any = redis.hmget(keys.state, "imported", PARENT)
    imported, parent = fields
    if imported is not None:
        raise RunOver(f"run {keys.run} is imported: it can be read and forked, but it does not go on")
    if parent is not None:
        raise RunOver(
            f"run {keys.run} is a child run, which answers a call of another run: steer that one (`acts status` names "
            f"it)"
        )


class AmendmentSteps:
    """The steps of one change of one run. All of them raise `RunNotFound`, `RunOver`, `BeingAmended`."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys
        self._who = secrets.token_hex(8)
        self._numbers = count(1)
        self._script = Script(redis, "amend")

    @contextmanager
    def listed(self, submitted: int) -> Iterator[None]:
        """Opening a run again that has ended, which was submitted then: it is listed before and after. A sweep that is
        about to let it expire takes it from the list.
        """
        listing = {self._keys.run: submitted}
        self._redis.zadd(active_runs(self._keys.prefix), listing)
        yield
        self._redis.zadd(active_runs(self._keys.prefix), listing)

    def opened(self, refused: str) -> tuple[int, str]:
        """When a run was submitted that is to go on, also where it has ended, and which change of it was written in
        part. Raises `RunOver` for one that is cancelled, of which what is `refused` cannot be done.
        """
        refuse_a_copy(self._redis, self._keys)
        fields: Any = self._redis.hmget(self._keys.state, "status", "submitted", "amending:by")
        status, submitted, by = fields
        if status is None:
            raise RunNotFound(self._keys.run)
        if status == b"cancelled":
            raise RunOver(f"run {self._keys.run} is cancelled: {refused}; fork it")
        return int(submitted or 0), (by or b"").decode()

    @contextmanager
    def begun(self, resume: Callable[[], None], *, adds: bool) -> Iterator[dict[str, Any]]:
        """Hold the run, and say how it was, while what is to be written is planned. Where that raises, the run is as
        before; `resume` lets it go on.
        """
        found = self.do("begin", adds=adds)
        try:
            yield found
        except BaseException:
            dropped = self.do("drop")
            if dropped["resumes"] and not found["by"]:
                with suppress(RunOver):
                    resume()
            raise

    def end(self, record: AuditRecord, resume: Callable[[], None]) -> None:
        """The last step of a change that is written: the run goes on if it did before and was not paused since. What is
        left may be nothing, so it says what the output comes to.
        """
        ended = self.do("end", output_fault=self._output_fault())
        record.write_line(self._keys.run)
        if ended["resumes"]:
            with suppress(RunOver):  # what was left has ended with the change
                resume()

    def _output_fault(self) -> str | None:
        """What `LaneView.output_fault` says of the global lane."""
        history = History(self._redis, self._keys)
        run = RunState(history.definition(), ())
        if not holds_references(run.definition.output):
            return None
        run.feed(history.lane(None))
        if any(run.shared.end(index) is None for index in run.shared.known):
            return None
        return output_fault(run.definition.output, run.shared.fold, run.definition.schema) or ""

    def do(self, step: str, **request: Any) -> dict[str, Any]:
        """One step."""
        return self._take(self._script(self._keys, self._request(step, request)))

    def do_all(self, step: str, requests: Iterable[Mapping[str, Any]]) -> None:
        """One step for each request, many of them in a round trip."""
        for some in batches(requests, _AT_ONCE):
            with self._redis.pipeline(transaction=False) as pipeline:
                for request in some:
                    self._script.add(pipeline, self._keys, self._request(step, request))
                for reply in pipeline.execute():
                    self._take(self._script.read(reply))

    def _request(self, step: str, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"step": step, "who": self._who, "number": next(self._numbers), **request}

    def _take(self, answer: dict[str, Any]) -> dict[str, Any]:
        """What the script says. Raises where the run is not ours to change."""
        if answer["status"] == "gone":
            raise RunNotFound(self._keys.run)
        if answer["status"] in ENDED and not answer["is_ours"]:
            raise RunOver(f"run {self._keys.run} is {answer['status']}: it cannot be amended any more")
        if answer["is_streaming"]:
            raise BeingAmended(f"a model is writing calls of run {self._keys.run}: try again when its answer is whole")
        if not answer["is_ours"]:
            raise BeingAmended(f"run {self._keys.run} is being amended by another client; look at it, then try again")
        return answer
