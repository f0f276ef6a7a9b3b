"""Taking note of heartbeats: what workers report that see only the broker goes into the runs' records.

What a report says of an attempt counts only with the attempt's token: its sender was given the call.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from itertools import chain
from typing import Any, Final, cast

from redis import Redis

from acts_celery.broker_config import Settings
from acts_celery.worker.process.refusals import count_refusal
from acts_celery.worker.storage.due import DueRuns
from acts_celery.worker.storage.keys import Keys, awaiting_code
from acts_celery.worker.storage.scripts import Script
from acts_celery.worker.storage.secret import read_tokens
from acts_celery.worker.storage.set_aside import readable
from acts_celery.worker.storage.unanswered import MOST_UNANSWERED
from acts_celery.worker.wire.reports import OF_CALLS, AboutCall, AttemptRef, Completion, Report, Unanswered, ref_of
from acts_celery.worker.wire.tokens import Tokens

from .broken_runs import BrokenRuns
from .outbox import Outbox
from .probes import Probes
from .thresholds import Thresholds

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 500
"""Of so many calls a script takes note without holding up the server."""
_MOST_AWAITING: Final = 10_000
"""In so many runs, the newest, calls are tried again when a worker has begun; in others when their time has come."""

_Noted = dict[str, list[Any]]
"""What reports say of one run's calls, by field."""


class Heartbeats:
    """Takes note of reports."""

    def __init__(self, redis: Redis, settings: Settings, outbox: Outbox, probes: Probes, broken: BrokenRuns) -> None:
        self._redis = redis
        self._settings = settings
        self._outbox = outbox
        self._probes = probes
        self._broken = broken
        self._script = Script(redis, "heartbeats")
        self._code_came = Script(redis, "code_came")
        self._due = DueRuns(redis, settings.key_prefix)

    def note(self, reports: Iterable[Report], thresholds: Thresholds) -> None:
        """Take note of reports; a run whose keys are broken is passed over. Raises `RedisError`."""
        noted: dict[str, _Noted] = defaultdict(lambda: {what: [] for what in OF_CALLS})
        reports = list(reports)
        for report in reports:
            for what in OF_CALLS:
                for one in getattr(report, what):
                    noted[ref_of(one).run][what].append(one)
        if noted:
            self._drop_forged(noted)
        if came_out := list(chain.from_iterable(report.probes for report in reports)):
            self._probes.note(came_out)
        for run, of_run in noted.items():
            with self._broken.passing_over(run):
                of_run["completed"] = [self._outbox.judged(run, one) for one in of_run["completed"]]
                self._outbox.bury(run, of_run["completed"])
        parts = [(run, part) for run, of_run in noted.items() for part in _parts(of_run)]
        with self._redis.pipeline(transaction=False) as pipeline:
            for run, part in parts:
                keys = Keys(self._settings.key_prefix, run)
                request = {
                    **asdict(thresholds),
                    "instances": self._settings.queue_instances,
                    **{what: [_in_request(one) for one in said] for what, said in part.items()},
                    "most_unanswered": MOST_UNANSWERED,
                }
                self._script.add(pipeline, keys, request)
            answers = pipeline.execute(raise_on_error=False)
        for (run, _), answer in zip(parts, answers, strict=True):
            self._broken.is_answer(run, answer)
        if any(report.started for report in reports):
            self._try_again()

    def _try_again(self) -> None:
        """Have what was given back tried again: a worker has begun, and its code may admit it (SPEC R17.3).

        Whoever writes reports can say so, too; that costs a try.
        """
        prefix = self._settings.key_prefix
        index = awaiting_code(prefix)
        self._redis.zremrangebyrank(index, 0, -_MOST_AWAITING - 1)
        while found := cast(list[tuple[bytes, float]], self._redis.zpopmax(index, _AT_ONCE)):
            runs = list(readable(index, dict(found), bytes.decode, partial(self._redis.zrem, index)))
            with self._redis.pipeline(transaction=False) as pipeline:
                for run in runs:
                    self._code_came.add(pipeline, Keys(prefix, run), {"most": _AT_ONCE})
                answers = pipeline.execute(raise_on_error=False)
            for run, answer in zip(runs, answers, strict=True):
                if self._broken.is_answer(run, answer):
                    self._due.note(run)

    def _drop_forged(self, noted: Mapping[str, _Noted]) -> None:
        """Leave out what is said of attempts without their token, or of a run that was deleted and whose id another one
        has.
        """
        tokens = read_tokens(self._redis, self._settings.key_prefix)
        with self._redis.pipeline(transaction=False) as pipeline:
            for run in noted:
                pipeline.hget(Keys(self._settings.key_prefix, run).state, "submitted")
            born = pipeline.execute(raise_on_error=False)
        refused = 0
        for (run, of_run), submitted in zip(noted.items(), born, strict=True):
            own = tokens.of_run(submitted.decode()) if isinstance(submitted, bytes) else None
            for what, said in of_run.items():
                shown = [one for one in said if _admits(tokens, ref_of(one))]
                refused += len(said) - len(shown)
                of_run[what] = [one for one in shown if own is None or own.admit_seal(run, ref_of(one).seal)]
                if late := len(shown) - len(of_run[what]):
                    logger.warning(
                        "%d reports of calls are passed over: run %.200s was deleted and is another", late, run
                    )
        if refused:
            logger.error("%d reports of calls are refused: they do not have the token of the attempt", refused)
            count_refusal("reports", refused)


def _admits(tokens: Tokens, ref: AttemptRef) -> bool:
    return tokens.admit_shown(ref.run, ref.lane, ref.call, ref.attempt, ref.token)


def _in_request(one: AboutCall) -> tuple[Any, ...]:
    """What the script is given of it (see heartbeats.lua)."""
    match one:
        case AttemptRef(_, lane, call, attempt):
            return lane, call, attempt
        case Completion(AttemptRef(_, lane, call, attempt), error, delay_seconds, is_given_back):
            delay_ms = -1 if delay_seconds is None else int(delay_seconds * 1000)
            return lane, call, attempt, delay_ms, error is not None, is_given_back
        case Unanswered(AttemptRef(_, lane, call, attempt), type_, why, tries, wait_ms):
            return lane, call, attempt, tries, wait_ms, type_, why


def _parts(of_run: _Noted) -> Iterator[_Noted]:
    """What is said of a run, as much at a time as the script is given."""
    for start in range(0, max(map(len, of_run.values())), _AT_ONCE):
        yield {what: said[start : start + _AT_ONCE] for what, said in of_run.items()}
