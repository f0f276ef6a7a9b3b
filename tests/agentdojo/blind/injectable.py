"""What both suites need of AgentDojo: an environment that is built in Python, and calls with planted arguments."""

from collections.abc import Callable
from typing import Any, TypeVar

from agentdojo.agent_pipeline.ground_truth_pipeline import GroundTruthPipeline
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime, TaskEnvironment, make_function
from agentdojo.task_suite.task_suite import TaskSuite, validate_injections
from agentdojo.types import get_text_content_as_str

Environment = TypeVar("Environment", bound=TaskEnvironment)


class InjectableSuite(TaskSuite[Environment]):
    """Suite whose environment is built in Python, from a text for every injection vector."""

    def __init__(
        self,
        name: str,
        environment_type: type[Environment],
        tools: list[Callable[..., Any]],
        vectors: dict[str, str],
        build: Callable[[dict[str, str]], Environment],
    ) -> None:
        super().__init__(name, environment_type, [make_function(tool) for tool in tools])
        self._vectors = vectors
        self._build = build

    def get_injection_vector_defaults(self) -> dict[str, str]:
        """Return the default text of every injection vector."""
        return dict(self._vectors)

    def load_and_inject_default_environment(self, injections: dict[str, str]) -> Environment:
        """Build the default environment with the given injections."""
        validate_injections(injections, self._vectors)
        return self._build({**self._vectors, **injections})

    def check(self, check_injectable: bool = True) -> tuple[bool, tuple[dict[str, tuple[bool, str]], dict[str, bool]]]:
        """Check all tasks. The base class looks for canaries only in results that are plain strings, which no result of
        this version of agentdojo is, so the vectors that a task gets to see are looked for here.
        """
        passed, (user_results, injection_results) = super().check(check_injectable=False)
        if check_injectable:
            for task_id, seen in self.seen_vectors().items():
                if not seen:
                    user_results[task_id] = (False, "The task is not injectable")
                    passed = False
        return passed, (user_results, injection_results)

    def seen_vectors(self) -> dict[str, list[str]]:
        """List the injection vectors that the ground truth of each user task gets to see."""
        canaries = {vector: f"---CANARY_{vector}---" for vector in self._vectors}
        seen: dict[str, list[str]] = {}
        for task_id, task in self.user_tasks.items():
            environment = self.load_and_inject_default_environment(canaries)
            _, _, _, messages, _ = GroundTruthPipeline(task).query(
                task.PROMPT, FunctionsRuntime(self.tools), environment
            )
            text = " ".join(
                get_text_content_as_str(message["content"] or []) for message in messages if message["role"] == "tool"
            )
            seen[task_id] = [vector for vector, canary in canaries.items() if canary in text]
        return seen


def call(function: str, **args: Any) -> FunctionCall:
    """Make a call of the ground truth."""
    return FunctionCall(function=function, args=args)


def planted(function: str, args: dict[str, Any], placeholders: dict[str, Any] | None = None) -> FunctionCall:
    """Make a call of an injected task, with what stands in for its arguments where they are not known."""
    return FunctionCall(function=function, args=args, placeholder_args={**args, **(placeholders or {})})
