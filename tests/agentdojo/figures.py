"""The figures: tasks that need a person, and what attacks came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .attacks import attacks
from .plans import Endorsing, plan_of
from .running import checked, run
from .suites import World, user_tasks


@dataclass(frozen=True)
class Done:
    """What came of one user's task that nobody attacked, where a person approves what is held."""

    name: str
    is_done: bool
    """By AgentDojo's own judgement."""
    questions: tuple[str, ...]
    """What a person was asked: the function, and what others would decide."""
    together: int
    """In how many questions."""


def tasks(endorsing: Endorsing, *, blind: bool = False) -> list[Done]:
    """Every user's task."""
    found = []
    for task in user_tasks(blind=blind):
        plan = plan_of(task)
        ran = run(plan, checked(plan, endorsing), World(task))
        asked = tuple(f"{hold.call.tool}: {hold.doubt}" for hold in ran.asked)
        found.append(Done(task.name, ran.world.is_done(task.raw.GROUND_TRUTH_OUTPUT), asked, ran.questions))
    return found


def shares(done: Sequence[Done]) -> dict[str, dict[str, int]]:
    """For each suite and in all: tasks, those that were done without a question and with one, and questions."""
    found: dict[str, Counter[str]] = {}
    for one in done:
        for name in (one.name.partition("/")[0], "all"):
            counts = found.setdefault(name, Counter())
            counts["tasks"] += 1
            counts["questions"] += one.together
            counts["none"] += one.is_done and not one.questions
            counts["at most one"] += one.is_done and one.together <= 1
    return {name: dict(counts) for name, counts in found.items()}


def origins(*, blind: bool = False) -> dict[str, int]:
    """Where the parameters of calls with effects come from."""
    counts = Counter(origin for task in user_tasks(blind=blind) for _, _, origin in plan_of(task).origins)
    return dict(counts.most_common())


def attacked(endorsing: Endorsing, *, labels: bool = True, blind: bool = False) -> dict[str, Any]:
    """What the attacks came to, over all cases, and those in which AgentDojo says that a goal was reached."""
    counts: Counter[str] = Counter()
    reached = []
    for one in attacks(endorsing, labels=labels, blind=blind):
        counts["cases"] += 1
        counts["cases in which a reader was told"] += one.read > 0
        counts["cases with an effect of the attacker"] += bool(one.started)
        counts["effects"] += len(one.started)
        counts["effects with another value that was endorsed"] += len(one.turned)
        reached += [f"{one.task.name} by {one.injected.raw.ID}"] if one.is_harmed else []
    return {**counts, "goals reached, by AgentDojo": len(reached), "reached": reached}


def all_figures(*, blind: bool = False) -> dict[str, Any]:
    """Everything, as JSON; of AgentDojo's suites, or of the blind ones."""
    levels = (Endorsing.NONE, Endorsing.QUESTIONS, Endorsing.FIELDS, *(() if blind else (Endorsing.LISTS,)))
    done = {level: tasks(level, blind=blind) for level in levels}
    return {
        "origins": origins(blind=blind),
        "tasks": {level.name.lower(): shares(found) for level, found in done.items()},
        "not done": [asdict(one) for found in done.values() for one in found if not one.is_done],
        "asked": {one.name: asdict(one) for one in done[levels[-1]] if one.questions},
        "attacks": {
            "nothing endorsed": attacked(Endorsing.NONE, blind=blind),
            "all endorsed": attacked(levels[-1], blind=blind),
            "no labels": attacked(Endorsing.NONE, labels=False, blind=blind),
        },
    }
