"""The pictures of docs/concepts.md, drawn by the product from the submissions beside them.

`python -m tests.docs.generate` writes them. A block "json NAME" is a submission and "mermaid NAME" its picture: that of
`acts check --mermaid`, or for a request, which "json NAME.answers" answers, that of `acts show --mermaid`.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from acts_celery import local
from acts_celery.broker_config import Settings
from acts_celery.worker.client.archive import draw
from acts_celery.worker.registry.activities import Policy, Registry, make_activity
from acts_celery.worker.runner.checking import Checker

_PICTURES: Final = re.compile(r"^```mermaid (\S+)\n.*?^```$", re.MULTILINE | re.DOTALL)
_BLOCKS: Final = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


_SECONDS: Final = 60


def with_pictures(page: str) -> str:
    """The page with its pictures as they are drawn now. Its Python is run first: it defines the tools."""
    blocks = _BLOCKS.findall(page)
    defined: dict[str, Any] = {"__name__": "page"}
    for language, _, text in blocks:
        if language == "python":
            exec(text, defined)
    tools = [one for one in defined.values() if getattr(one, "__module__", None) == "page"]
    given = {name: json.loads(text) for language, name, text in blocks if language == "json"}
    drawn = {
        name: _run_of(one, given[f"{name}.answers"], tools) if "schema" in one else _plan_of(one, tools)
        for name, one in given.items()
        if not name.endswith(".answers")
    }
    return _PICTURES.sub(lambda found: f"```mermaid {found[1]}\n{drawn[found[1]]}\n```", page)


def _plan_of(submission: Any, tools: Sequence[Callable[..., Any]]) -> str:
    """The picture of a plan."""
    registry = Registry()
    for tool in tools:
        registry.add_activity(make_activity(tool, None, None, Policy()))
    return (
        Checker(Settings(model="scripted:answers.json"), registry)
        .check(submission)
        .to_mermaid(annotated=True)
        .rstrip("\n")
    )


def _run_of(request: Any, answers: Any, tools: Sequence[Callable[..., Any]]) -> str:
    """The picture of a request's run, at its end, or when a call waits for a person."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "answers.json"
        file.write_text(json.dumps(answers), encoding="utf-8")
        with local(tools, model=f"scripted:{file}") as client:
            run = client.submit_document(request)
            is_held = any(event.kind == "held" for event in run.follow(timeout_seconds=_SECONDS))
            result = run.result()
            assert is_held or result.status == "completed", result.reason
            drawn = draw(result)
            if is_held:
                run.cancel()
    return drawn.replace(f"scripted:{file.name}", "the model")
