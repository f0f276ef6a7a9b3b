"""Results of pure activities that are kept: who has them, for how long, and what is said of it."""

from __future__ import annotations

from typing import Any

from acts_celery import Client, Result
from acts_celery.broker_config.tokens import Identity
from acts_celery.worker.limits import HEAVY_BYTES

from .backend import Backend, Meeting


def squared(n: Any, **meta: Any) -> dict[str, Any]:
    return {"_tool": "squareOnce", "n": n, "_outputPath": "†state.square"} | meta


def reasons(result: Result) -> list[str | None]:
    return [call.reason for call in result.calls]


def test_a_pure_activity_is_not_run_again_for_what_it_was_given_and_the_log_says_so(
    backend: Backend, meeting: Meeting
) -> None:
    first, again, other = (backend.run([squared(n)]) for n in (11, 11, 12))
    assert [one.data()["state"]["square"] for one in (first, again, other)] == [121, 121, 144]
    assert (meeting.attempts("squared:11"), meeting.attempts("squared:12")) == (1, 1)
    assert reasons(first) + reasons(again) + reasons(other) == [
        None,
        f"from the cache: the result of the call {first.run}:0",
        None,
    ]
    for mark in (1, 1, 2):
        backend.run([squared(11, _tool="squareInState", _scopes=["state"])], [{"type": "state", "mark": mark}])
    assert meeting.attempts("squared in state:11") == 2, "its scopes are what it is given, too"


def test_what_one_owner_has_made_is_never_another_ones(backend: Backend, meeting: Meeting) -> None:
    with (
        Client(backend.settings.acting_for("ann", Identity("ann"))) as ann,
        Client(backend.settings.acting_for("tom", Identity("tom"))) as tom,
    ):
        for client in (backend.client, ann, tom, ann):
            run = client.submit((), {"calls": [squared(13)]})
            assert backend.wait(run.id).data() == {"state": {"square": 169}}
    assert meeting.attempts("squared:13") == 3


def test_a_kept_result_has_the_sources_of_the_call_that_takes_it(backend: Backend) -> None:
    labels = []
    for trust in ({"_trust": ["mail"]}, {}, {"_trust": ["web"]}):
        run = backend.client.submit([{"type": "input", "n": 14, **trust}], {"calls": [squared("†input.n")]})
        backend.wait(run.id)
        labels += [entry.message.get("_trust") for entry in run.log() if "square" in str(entry.message)]
    assert labels == [["mail"], None, ["web"]]


def test_only_results_that_were_taken_are_kept_and_each_for_its_time_and_few(
    backend: Backend, meeting: Meeting
) -> None:
    small = {"properties": {"_activity": {"const": "squareOnce"}, "_output": {"maximum": 1}}}
    refused = backend.run([squared(15, _tool="small")], tools={"small": small})
    assert refused.status == "failed"
    assert backend.run([squared(15)]).data()["state"]["square"] == 225
    assert meeting.attempts("squared:15") == 2
    for _ in range(2):
        backend.run([squared(HEAVY_BYTES, _tool="writeOnce")])
    assert meeting.attempts(f"written:{HEAVY_BYTES}") == 2, "what is large is not kept"
    keys = list(backend.redis.scan_iter(f"{backend.settings.key_prefix}:cache:*"))
    assert keys
    left: list[Any] = [backend.redis.pttl(key) for key in keys]
    assert all(0 < one <= 60_000 for one in left)
    assert all(len(key.rpartition(b":")[2]) == 3 for key in keys)
