"""Models: who solves a request (SPEC R9.1, R11.3). A scripted model answers from a file; providers come later.

A model takes a request - context, schema, configuration - and returns a *solution*: `{"calls": […], "output": …}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from broker_config import Settings
from protocol.schemas import compiled
from worker.errors import CallFailed, WorkerError


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What a model is asked."""

    context: Sequence[Mapping[str, Any]]
    schema: Any = None
    config: Mapping[str, Any] = field(default_factory=dict)


class Model(Protocol):
    """Anything that solves requests."""

    def solve(self, request: ModelRequest) -> Mapping[str, Any]:
        """The solution of a request. Raises `CallFailed` where there is none."""
        ...


@dataclass(frozen=True)
class ScriptedModel:
    """Answers from a list; the first whose every `when` text occurs in the request's context is taken.

        [{"when": "Привет", "output": "Hello"},
         {"when": ["translator", "Bonjour"], "solution": {"calls": [], "output": "Hello"}}]

    `when` is a text or a list of texts that must all occur in the context's values; without it, it always fits.
    """

    answers: Sequence[Mapping[str, Any]]

    @classmethod
    def load(cls, path: Path) -> ScriptedModel:
        """Read the answers from a JSON file. Raises `WorkerError`."""
        try:
            answers = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise WorkerError(f"ACTS_MODEL: cannot read {path}: {error.strerror}") from error
        except ValueError as error:
            raise WorkerError(f"ACTS_MODEL: {path} is not JSON: {error}") from error
        if not isinstance(answers, list) or not all(_is_answer(answer) for answer in answers):
            raise WorkerError(f'ACTS_MODEL: {path} must be a list of {{"when": text or texts, "output": value}}')
        return cls(answers)

    def solve(self, request: ModelRequest) -> Mapping[str, Any]:
        """The first answer that fits."""
        said = json.dumps([dict(message) for message in request.context], ensure_ascii=False)
        for answer in self.answers:
            when = answer.get("when", [])
            texts = [when] if isinstance(when, str) else when
            if all(json.dumps(text, ensure_ascii=False)[1:-1] in said for text in texts):
                solution: Mapping[str, Any] = answer.get("solution", {"calls": [], "output": answer.get("output")})
                return solution
        raise CallFailed("the scripted model has no answer to this request", retry=False)


def configured_model(settings: Settings) -> Model | None:
    """The model of the settings, or None. Raises `WorkerError` where it cannot be had."""
    if settings.model is None:
        return None
    provider, _, name = settings.model.partition(":")
    if provider == "scripted":
        return ScriptedModel.load(Path(name))
    raise WorkerError(f"ACTS_MODEL: unknown provider {provider!r}; there is scripted:FILE.json")


def solve(model: Model, request: ModelRequest) -> Any:
    """The output of a request's solution, valid by its schema (SPEC R9.3). Raises `CallFailed`."""
    solution = model.solve(request)
    if solution.get("calls") and solution.get("output") is None:
        raise CallFailed("the model answered with calls; running them in a child run is not supported yet", retry=False)
    output = solution.get("output")
    problems = compiled(request.schema).problems(output, known=()) if request.schema is not None else []
    if problems:
        raise CallFailed("the model's answer is not what the schema demands: " + "; ".join(map(str, problems)))
    return output


def _is_answer(answer: Any) -> bool:
    return isinstance(answer, dict) and ("output" in answer or "solution" in answer)
