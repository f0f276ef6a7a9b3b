"""Schedules and trust: where the check reports no way, no schedule holds or refuses a call, whatever goes wrong and
whatever is retried (SPEC R16.5).

Plans are written by dice, and dice say which of their tools have effects and who writes to results and data. There are
forty plans before every change and two thousand every night, each under ten schedules. As many others have calls that
gather, and calls for each element: the simulator has neither, so these are run in five orders, and retried.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from acts_celery.protocol import Plan, check_submission
from acts_celery.protocol.calls.trust import said_of
from acts_celery.protocol.engine.events import CallEnded, Hold
from acts_celery.protocol.engine.execution import UNTRUSTED

from .authoring import ACTIVITIES, EXPLICIT, Author, carry_out
from .simulator import Lane, World
from .simulator.log import Entry
from .test_against_naive import adapted
from .test_law_retries import Faulty

BATCH = 40
BATCHES = [0, *(pytest.param(batch, marks=pytest.mark.nightly) for batch in range(1, 50))]
FUNCTIONS = {name: adapted(function) for name, function in {**EXPLICIT, "stamp": EXPLICIT["give"]}.items()}


class Wide(Author):
    """Also has calls for each element, and calls that gather."""

    def _shape(self) -> None:
        self._random.choice((super()._shape, self._elements, self._gather if self._instances else self._elements))()

    def _elements(self) -> None:
        parts, place = self._place(), self._place()
        self._add("list", parts, value=self._value())
        self._add(self._random.choice(("give", "wrap", "fail")), place, value=parts, _each="value")
        self._known.setdefault(self._lane, []).append(place)
        self._make(f"{place} || †state.g")

    def _gather(self) -> None:
        """One who reads what instances have written, or what was given to them."""
        known = [place for places in self._known.values() for place in places[-2:]]
        one, other = (self._random.choice(["†state.mine", "†state.g", *known]) for _ in range(2))
        lane, self._lane = self._lane, None
        place = self._place()
        self._add(self._plain(), place, value=self._random.choice((one, f"{one} || {other}")), _gather=True)
        self._known.setdefault(None, []).append(place)
        self._lane = lane
        self._make(place)


def labelled(seed: int, author: type[Author] = Author) -> Plan:
    """A plan of which some tools have effects, and others write to some results and data. Where the check reports a way
    its call is refused. Where it reports none, a call would be held, and whoever runs it fails.
    """
    random = Random(seed)
    submission = author(random).submission()
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


class Alone(Faulty):
    """Nobody is there to decide on what is held."""

    def held(self, instance: Lane, hold: Hold) -> None:
        raise AssertionError(f"call {hold.call.index} is held, and nobody is there")


def refused_in_any_order(plan: Plan, seed: int) -> set[int]:
    """The same of one order, in which calls that have failed at first are carried out again, and what was stale."""
    random = Random(seed)
    share = random.choice((0, 0.3, 1.0))
    driver = Alone(plan, lambda where: random.random() < share, random, functions=FUNCTIONS)
    driver.run()
    ends = [event for _, event in driver.events if isinstance(event, CallEnded)]
    return {end.call for end in ends if end.error is not None and end.error["type"] == UNTRUSTED}


@pytest.mark.parametrize(("author", "run", "schedules"), [(Author, refused, 10), (Wide, refused_in_any_order, 5)])
@pytest.mark.parametrize("batch", BATCHES)
def test_r16_5_where_the_check_reports_no_way_no_schedule_holds_or_refuses_a_call(
    batch: int, author: type[Author], run: Callable[[Plan, int], set[int]], schedules: int
) -> None:
    free = stopped = 0
    for seed in range(batch * BATCH, (batch + 1) * BATCH):
        plan = labelled(seed, author)
        said, found = ways(plan), set[int]()
        for schedule in range(schedules):
            found |= run(plan, schedules * seed + schedule)
            assert found <= said, f"plan {seed}, schedule {schedule}"
        trust = [said_of(plan.trust, call.tool, call.runner.name) for call in plan.calls]
        sources = [one.result for one in trust] + [message.get("_trust") for message in plan.submission.context]
        free += any(one.effects for one in trust) and any(sources) and not said
        stopped += bool(found)
    if batch == 0:  # of forty others it may be none
        assert free, "some have effects and a source, and no way"
        assert stopped
