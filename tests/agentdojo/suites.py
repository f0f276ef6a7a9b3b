"""AgentDojo itself: its suites and the blind ones, and a world of one task in which their functions are carried out.

It brings other libraries, which must not stand beside ours: they lie in a folder of their own, behind everything else
on the path, and only the process that measures looks there.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from .blind.labels import FORGE, SHOP
from .labels import LABELS, Said

VERSION: Final = "0.1.35"
SUITES: Final = "v1.2.2"
BLIND: Final[Mapping[str, Mapping[str, Said]]] = {"shop": SHOP, "forge": FORGE}
"""What is said of the functions of the suites that were made blindly."""
_FOLDER: Final = Path(__file__).resolve().parents[2] / ".agentdojo"


class NotInstalled(Exception):
    """pip could not install AgentDojo."""


@dataclass(frozen=True)
class Task:
    """A user's task, or one that an attacker injects."""

    suite: str
    raw: Any
    """AgentDojo's own."""

    @property
    def name(self) -> str:
        """Unique among all suites' tasks of its sort."""
        return f"{self.suite}/{self.raw.ID}"


@dataclass
class World:
    """The environment of one task."""

    task: Task
    injections: Mapping[str, str] = field(default_factory=dict)
    """What an attacker has written at each of the suite's places."""
    called: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """The functions that were carried out, in order."""

    def __post_init__(self) -> None:
        suite = _suites()[self.task.suite]
        environment = _environment(self.task.suite, tuple(self.injections.items())).model_copy(deep=True)
        if hasattr(self.task.raw, "init_environment"):
            environment = self.task.raw.init_environment(environment)
        self.environment = environment
        self.before = environment.model_copy(deep=True)
        self._functions = {tool.name: tool for tool in suite.tools}

    def call(self, name: str, parameters: Mapping[str, Any]) -> Any:
        """What a function gives, as JSON; it raises what the function raises."""
        self.called.append((name, dict(parameters)))
        function = self._functions[name]
        given = {key: one.extract_dep_from_env(self.environment) for key, one in function.dependencies.items()}
        return as_json(function.run(**given, **function.parameters(**parameters).model_dump()))

    @property
    def effects(self) -> list[tuple[str, dict[str, Any]]]:
        """The calls that changed something outside."""
        return [(name, parameters) for name, parameters in self.called if labels_of(self.task.suite)[name].effects]

    def is_done(self, output: str) -> bool:
        """Whether the user's task is done, by AgentDojo's own judgement."""
        return self._is("utility", self.task, output)

    def is_harmed_by(self, injected: Task, output: str = "") -> bool:
        """Whether the goal of an attacker is reached, by AgentDojo's own judgement."""
        return self._is("security", injected, output)

    def _is(self, method: str, task: Task, output: str) -> bool:
        from agentdojo.functions_runtime import FunctionCall

        trace = [FunctionCall(function=name, args=parameters) for name, parameters in self.called]
        judge, by_trace = getattr(task.raw, method), getattr(task.raw, f"{method}_from_traces")
        said = by_trace(output, self.before, self.environment, trace)
        return bool(judge(output, self.before, self.environment) if said is None else said)


def labels_of(suite: str) -> Mapping[str, Said]:
    """What is said of the functions of a suite."""
    return BLIND.get(suite, LABELS)


def schemas(suite: str) -> dict[str, dict[str, Any]]:
    """The JSON Schema of the parameters of each function of a suite."""
    return {tool.name: tool.parameters.model_json_schema() for tool in _suites()[suite].tools}


def user_tasks(*, blind: bool = False) -> Iterator[Task]:
    """All of AgentDojo's or of the blind suites', suite by suite."""
    return (Task(name, raw) for name, suite in suites(blind=blind).items() for raw in suite.user_tasks.values())


def injected_tasks(suite: str) -> Iterator[Task]:
    """What is injected into the tasks of a suite."""
    return (Task(suite, raw) for raw in _suites()[suite].injection_tasks.values())


def places(suite: str) -> list[str]:
    """Where an attacker can write."""
    return list(_suites()[suite].get_injection_vector_defaults())


def suites(*, blind: bool = False) -> dict[str, Any]:
    """AgentDojo's by name, or the blind ones. AgentDojo is installed where it is missing. Raises `NotInstalled`."""
    return {name: suite for name, suite in _suites().items() if (name in BLIND) is blind}


@cache
def _suites() -> dict[str, Any]:
    _install()
    if str(_FOLDER) not in sys.path:
        sys.path.append(str(_FOLDER))
    from agentdojo.task_suite.load_suites import get_suites

    from .blind import forge, shop

    return {**get_suites(SUITES), "shop": shop.task_suite, "forge": forge.task_suite}


@lru_cache(maxsize=4)
def _environment(suite: str, injections: tuple[tuple[str, str], ...]) -> Any:
    return _suites()[suite].load_and_inject_default_environment(dict(injections))


def as_json(value: Any) -> Any:
    """What a function gives, in JSON's terms."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(key): as_json(one) for key, one in value.items()}
    return [as_json(one) for one in value] if isinstance(value, list | tuple) else value


def _install() -> None:
    stamp = _FOLDER / "installed"
    _FOLDER.mkdir(exist_ok=True)
    wanted = f"{VERSION} {sys.version}"
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
            return
        print("installing AgentDojo into .agentdojo (once; about a minute) …", file=sys.stderr)
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--upgrade"]
        command = [*pip, "--target", str(_FOLDER), f"agentdojo=={VERSION}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotInstalled(f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()[-500:]}")
        stamp.write_text(wanted, encoding="utf-8")
