"""The status of a run, and its calls counted by theirs: what `acts status` shows (SPEC R11.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from redis import Redis

from acts_celery.protocol.engine.loop import Stage
from acts_celery.worker.errors import OtherFormat, RunNotFound
from acts_celery.worker.storage.child_links import PARENT, Parent
from acts_celery.worker.storage.condition import is_at_work
from acts_celery.worker.storage.formats import require_format
from acts_celery.worker.storage.keys import ENDED, Keys
from acts_celery.worker.storage.loop_entries import LOOP
from acts_celery.worker.storage.unanswered import read_unanswered
from acts_celery.worker.storage.waiting import read_waiting
from acts_celery.worker.wire.attempts import CallId

from .background import read_background
from .descendants import Descendants
from .promised import read_promised

if TYPE_CHECKING:
    from .results import Result

RunStatus = Literal["running", "paused", "completed", "failed", "cancelled", "foreign"]
"""The statuses of a run."""
FOREIGN: Final = "foreign"
"""The status of a run that another version wrote down, in a format that this one does not read (SPEC R11.1)."""
_FOREIGN_WAITS: Final = (
    "another version wrote it down: start workers of that version (`acts doctor` says who is there), or delete it "
    "(`acts delete {} --foreign`)"
)
_LEFT: Final = frozenset({"held", "running", "waiting"})
_ASKING: Final = (Stage.ASKED, Stage.OPEN)
"""The stages in which a model is asked."""
_MOST_INSTANCES: Final = 1_000


def run_status(text: str) -> RunStatus:
    """The status of this text, which the log has."""
    return cast(RunStatus, text)


def read_state(redis: Redis, keys: Keys) -> dict[str, str]:
    """A run's state. Raises `RunNotFound`, `OtherFormat`, `RedisError`."""
    state: Any = redis.hgetall(keys.state)
    if not state:
        raise RunNotFound(keys.run)
    require_format(int(state[b"format"]))
    return {key.decode(): value.decode() for key, value in state.items()}


def status_of(redis: Redis, keys: Keys) -> dict[str, Any]:
    """What `Run.status` says. Raises `RunNotFound`, `RedisError`."""
    try:
        state = read_state(redis, keys)
    except OtherFormat:
        waits = {"call": None, "for": "version", "reason": _FOREIGN_WAITS.format(keys.run)}
        return {"run": keys.run, "status": FOREIGN, "calls": {}, "waiting_for": [waits]}
    is_cut = _is_cut_short(state)
    held: Any = 0 if is_cut else redis.zcard(keys.held)
    asking = not is_cut and _is_asking(redis, keys, state)
    counts = counts_of(state, held=held, asking=asking)
    below = Descendants(redis, keys).count_held() if "running" in counts else 0
    told: dict[str, Any] = {"run": keys.run, "status": state["status"], "calls": counts}
    if below:
        told["held_below"] = below
    if "sent" in state and (background := read_background(redis, keys)) is not None:
        told["background"] = background.to_dict()
    if state["status"] not in ENDED:
        waiting = [*read_waiting(redis, keys), *(read_promised(redis, keys, state) if counts.keys() & _LEFT else ())]
        told |= {"waiting_for": [one.to_dict() for one in waiting]} if waiting else {}
    if state["status"] not in ENDED and (unanswered := read_unanswered(redis, keys)):
        told["unanswered"] = [asdict(one) for one in unanswered]
    if (parent := Parent.read(state.get(PARENT))) is not None:
        told["parent"] = {"run": parent.call.run, "call": parent.call.name}
    if "forked_from" in state:
        told["forked_from"] = {"run": state["forked_from"], "at": state["forked_at"]}
    return told


def counts_of(state: Mapping[str, str], *, held: int = 0, asking: int = 0) -> dict[str, int]:
    """The calls of a run counted by their statuses, from its state: so many are held, which count as waiting where that
    is not said; `asking` are at work and no calls.
    """
    counts = Counter({key[2:]: int(value) for key, value in state.items() if key.startswith("n:")})
    left = int(state["total"]) - counts.total()
    if _is_cut_short(state):
        begun = int(state.get("running", 0)) + int(state.get("between", 0)) - (_stage(state) in _ASKING)
        begun = min(left, max(0, begun))
        counts["failed"] += begun
        counts["skipped"] += left - begun
    else:
        counts["held"] = held
        counts["running"] = int(state.get("running", 0)) - asking
        counts["waiting"] = max(0, left - counts["running"] - held)
    return {status: number for status, number in counts.items() if number}


def has_begun_calls(state: Mapping[str, str]) -> bool:
    """Whether there may be calls of a run, by its state, that have begun and not ended."""
    return int(state.get("running", 0)) > 0 or int(state.get("between", 0)) > 0


def _is_cut_short(state: Mapping[str, str]) -> bool:
    """Whether the run was ended as it stood: what had not begun in it counts as skipped, what had begun as failed."""
    return state["status"] == "cancelled" or "exceeded" in state


def status_in(result: Result, *, instances: bool) -> dict[str, Any]:
    """The same, as a result has it; with `instances` also how each stands, where it has some."""
    calls = dict(Counter(call.status for call in result.calls))
    told = {"run": result.run, "status": result.status, "calls": calls}
    return told | ({"instance_status": dict(result.instance_status)} if instances and result.instances else {})


def has_few_instances(redis: Redis, keys: Keys) -> bool:
    """Whether a run has instances, and few enough to read its whole log for how they stand. Raises `RedisError`."""
    number: Any = redis.llen(keys.instances)
    return 0 < int(number) <= _MOST_INSTANCES


def _stage(state: Mapping[str, str]) -> str:
    """The stage of the run's loop; nothing where it has none."""
    return state.get("loop", "").partition(":")[0]


def _is_asking(redis: Redis, keys: Keys, state: Mapping[str, str]) -> bool:
    """Whether a model is being asked, which is no call of the run."""
    stage, tick = _stage(state), state.get("loop", "").partition(":")[2]
    if stage not in _ASKING:
        return False
    entry: Any = redis.hget(keys.calls, CallId(keys.run, LOOP, int(tick)).member)
    return is_at_work(entry)
