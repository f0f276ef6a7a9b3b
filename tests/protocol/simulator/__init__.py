"""A backend in memory, run by dice: a log, worker processes with stale views, and every misfortune they may meet.

It is the worker's code told again without Redis and Celery: `log` is what `worker/store/lua/commit.lua` and
`sweep.lua` do, `views` is `worker/store/lane.py`, `drive` is `worker/runner/lane_runner.py`, `process` is
`worker/runner/scheduler.py`. Each `yield` is an `await` there: a moment at which anything else may
happen, the death of the process included. The broker delivers nothing again: what is lost is found by the marks in the
log, or never.
"""

from .log import DATE, Lane, standing
from .world import World

__all__ = ["DATE", "Lane", "World", "standing"]
