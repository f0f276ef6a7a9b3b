"""A speaker: in the place of a model it plans by a task's ground truth, and where it reads what an attacker wrote, it
answers what that one wants. It knows nothing but what it is asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.models.server import Reply, whole

from .attacks import MARK, Obedient
from .plans import READER_TOLD, Plan, plan_of
from .running import honest
from .suites import injected_tasks, user_tasks


class Speaker:
    """Answers requests of OpenAI's API, of the tasks of one suite, one after the other."""

    def __init__(self, suite: str) -> None:
        self._tasks = [task for task in user_tasks() if task.suite == suite]
        self._attackers = {f"{MARK}: {task.raw.GOAL}": Obedient(task) for task in injected_tasks(suite)}
        self._plan: Plan | None = None
        self.task = ""
        """The one that it has planned last."""

    @property
    def read(self) -> int:
        """How often it has answered what an attacker wants."""
        return sum(attacker.answers for attacker in self._attackers.values())

    def __call__(self, body: Mapping[str, Any]) -> Reply:
        """What it answers."""
        shown = "\n\n".join(str(message["content"]) for message in body["messages"])
        if READER_TOLD in shown:
            return whole(json.dumps({"output": self._answer(shown)}))
        assert MARK not in shown, "whoever plans is not shown what others wrote"
        asked = (task for task in self._tasks if task.raw.PROMPT in shown)
        task = max(asked, key=lambda one: len(one.raw.PROMPT))  # the prompt of one task begins with that of another
        if any(message["role"] == "assistant" for message in body["messages"]):
            return whole(json.dumps({"calls": [], "output": task.raw.GROUND_TRUTH_OUTPUT}))
        self._plan, self.task = plan_of(task), task.name
        return whole(json.dumps({"calls": self._plan.calls, "output": None}))

    def _answer(self, shown: str) -> Any:
        assert self._plan is not None
        (question,) = [asked for text, asked in self._plan.questions.items() if json.dumps(text) in shown]
        told = (one for text, one in self._attackers.items() if json.dumps(text)[1:-1] in shown)
        return next(told, honest)(question, shown)
