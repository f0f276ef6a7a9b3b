"""Schedules and trust: where the check reports no way, no schedule holds or refuses a call, whatever goes wrong and
whatever is retried (SPEC R16.5).

Plans are written by dice, and dice say which of their tools have effects and who writes to results and data. There are
forty plans before every change and two thousand every night, each under ten schedules.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from acts_celery.protocol import Plan, check_submission
from acts_celery.protocol.calls.trust import said_of
from acts_celery.protocol.engine.execution import UNTRUSTED

from .authoring import ACTIVITIES, Author, carry_out
from .simulator import World
from .simulator.log import Entry

BATCH = 40
BATCHES = [0, *(pytest.param(batch, marks=pytest.mark.nightly) for batch in range(1, 50))]
SCHEDULES = 10


def labelled(seed: int) -> Plan:
    """A plan of which some tools have effects, and others write to some results and data. Where the check reports a way
    its call is refused. Where it reports none, a call would be held, and the simulator fails.
    """
    random = Random(seed)
    submission = Author(random).submission()
    given, fetched = random.choice(((0.05, 0.05), (0.02, 0.1), (0.3, 0.1)))

    def trust(sources: float) -> dict[str, Any]:
        result = [name for name in ("mail", "page") if random.random() < sources]
        effects = random.random() < 0.3
        content = ["value"] if effects and random.random() < 0.7 else []
        return {"result": result, "effects": effects, "content": content}

    for message in submission["context"]:
        if message["type"] in ("state", "input"):
            message["_trust"] = trust(given)["result"]
    activities = {name: {**schema, "_trust": trust(fetched)} for name, schema in ACTIVITIES.items()}
    refusing = check_submission({**submission, "config": {"trust": {"otherwise": "refuse"}}}, activities=activities)
    return refusing if ways(refusing) else check_submission(submission, activities=activities)


def ways(plan: Plan) -> set[int]:
    """The calls with effects that others would decide, by the check."""
    return {call for finding in plan.findings if finding.code in ("ACT601", "ACT602") for call in finding.calls}


def refused(plan: Plan, seed: int) -> set[int]:
    """The calls that one schedule refuses for trust."""
    random = Random(seed)
    share = random.choice((0, 0, 0.3, 1.0))
    calls = [
        (lane, call.index) for lane, one in plan.lanes.items() for call in one.calls if not call.is_fire_and_forget
    ]
    world = World(
        plan,
        lambda start, lane, attempt, context: carry_out(start, attempt, context),
        random,
        processes=random.choice((1, 2, 3)),
        misfortunes=random.choice((0, 4, 10, 30)),
        faulty={call for call in calls if random.random() < share},
    )
    world.run()
    ends = [entry.outcome for journal in world.log.journals.values() for entry in journal if isinstance(entry, Entry)]
    return {end.index for end in ends if end.error is not None and end.error["type"] == UNTRUSTED}


@pytest.mark.parametrize("batch", BATCHES)
def test_r16_5_where_the_check_reports_no_way_no_schedule_holds_or_refuses_a_call(batch: int) -> None:
    free = stopped = 0
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        plan = labelled(seed)
        said, found = ways(plan), set[int]()
        for schedule in range(SCHEDULES):
            found |= refused(plan, SCHEDULES * seed + schedule)
            assert found <= said, f"plan {seed}, schedule {schedule}"
        trust = [said_of(plan.trust, call.tool, call.runner.name) for call in plan.calls]
        sources = [one.result for one in trust] + [message.get("_trust") for message in plan.submission.context]
        free += any(one.effects for one in trust) and any(sources) and not said
        stopped += bool(found)
    assert free, "some have effects and a source, and no way"
    assert stopped
