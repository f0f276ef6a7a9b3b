"""A reader finds the module of a rule in the package's own words."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from acts_celery import protocol
from acts_celery.protocol import analysis, calls, engine, hints, language, requests, schemas, slips, state
from acts_celery.protocol import plan as graph
from acts_celery.protocol import plan as submission
from acts_celery.worker import agent as loop
from acts_celery.worker import agent as models
from acts_celery.worker import broker, client, process, recovery, registry, ui
from acts_celery.worker import broker as wire
from acts_celery.worker import recovery as liveness
from acts_celery.worker import runner as app
from acts_celery.worker import runner as fairness
from acts_celery.worker import runner as lanes
from acts_celery.worker import store as storage
from acts_celery.worker import telemetry as traces
from acts_celery.worker.cli import doctor


@pytest.mark.parametrize(
    "package",
    [
        *(protocol, language, state, schemas, calls, graph, engine, submission, slips, hints, analysis, requests),
        *(wire, process, fairness, storage, broker, liveness, registry, models, lanes, loop, recovery),
        *(app, client, ui, traces, doctor),
    ],
)
def test_a_package_names_each_of_its_modules_and_no_other(package: ModuleType) -> None:
    folder = Path(package.__file__ or "").parent
    modules = {path.stem for path in folder.glob("*.py")} | {path.parent.name for path in folder.glob("*/__init__.py")}
    named = set(re.findall(r"`([a-z_]+)`", package.__doc__ or ""))
    assert named == modules - {"__init__"}
