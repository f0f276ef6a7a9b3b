"""Running the examples of agents, with the scripts that answer in place of a model, and drawing their runs."""

from __future__ import annotations

import json
from typing import Final

from acts_celery import local
from acts_celery.worker.client.archive import draw

from .files import DEPLOY

FOLDER: Final = DEPLOY / "examples" / "agents"
NAMES: Final = ("moderation", "refund", "translation", "research")
_SECONDS: Final = 60


def picture(name: str) -> str:
    """The picture of an example's run; a person approves of everything."""
    with local([FOLDER / "agents.py"], model=f"scripted:{FOLDER / name}.answers.json") as client:
        run = client.submit_document(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")))
        for event in run.follow(timeout_seconds=_SECONDS):
            if event.kind == "held":
                for held in run.held():
                    run.approve(held["call"])
        result = run.result()
        assert result.status == "completed", result.to_dict()
        drawn = draw(result, lambda child: run.child(child).result())
    return drawn.replace(f"scripted:{name}.answers.json", "the model")
