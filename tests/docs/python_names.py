"""Every public name of the Python API, with its signature, from the code."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final, get_args

import acts_celery.broker_config
import acts_celery.protocol
from acts_celery.protocol.analysis.provenance import Explanation, Origin
from acts_celery.worker.agent.scripted import FakeModel
from acts_celery.worker.client.call_results import CallEnd, Timing
from acts_celery.worker.client.deployments import Summary
from acts_celery.worker.client.results import TickResult
from acts_celery.worker.client.retrying import Retried
from acts_celery.worker.client.run import ReadableRun
from acts_celery.worker.client.submitting import DraftCall
from acts_celery.worker.client.undoing import Undone
from acts_celery.worker.local import Local
from acts_celery.worker.registry.models import ModelRequest

_GIVEN: Final = (
    Local,
    TickResult,
    Timing,
    CallEnd,
    Summary,
    Retried,
    Undone,
    Explanation,
    Origin,
    DraftCall,
    FakeModel,
    ModelRequest,
)
"""Classes of what methods of public names give. They are not imported."""
_ABOUT_CODES: Final = (
    "Each error has a `code`, an attribute of its class, by which programs tell errors apart. It stays the same in "
    "later versions; texts may change."
)
_ABOUT_GIVEN: Final = "You get these from methods of the classes above. You do not import them."
_NOT_FOR_USERS: Final = (
    *("run_of", "require", "add", "reading", "events", "checker", "submit_plan", "pack"),
    *("counts", "forget_runs", "forget_instances", "forget_calls"),
)
_RAISED: Final = re.compile(r"`(?:protocol\.)?([A-Z]\w+)`")
_RULES: Final = re.compile(r" \(SPEC R[^)]*\)| \(see `[^`]*`\)")


def names() -> str:
    """All of them: decorators and functions, classes, values that these give, errors."""
    public = {name: getattr(acts_celery, name) for name in acts_celery.__all__}
    errors = public_errors()
    classes = {name: one for name, one in public.items() if inspect.isclass(one) and name not in errors}
    functions = {name: one for name, one in public.items() if name not in errors and name not in classes}
    given = {one.__name__: one for one in _GIVEN}
    lines = ["`from acts_celery import …`:", ""]
    for name, function in functions.items():
        lines += _function(name, function)
    for name, one in classes.items():
        lines += _class(name, one)
    lines += ["", _ABOUT_GIVEN]
    for name, one in given.items():
        lines += _class(name, one)
    lines += ["", "### Every error", "", _ABOUT_CODES, "", "| error | `code` | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | `{error.code}` | {sentence(error)} |" for name, error in errors.items()]
    return "\n".join(lines)


def public_errors() -> dict[str, Any]:
    """The exceptions that the packages export, by the names that they are imported under."""
    found = {
        one: name if package is acts_celery else f"{package.__name__}.{name}"
        for package in (acts_celery.broker_config, acts_celery.protocol, acts_celery)
        for name in package.__all__
        if inspect.isclass(one := getattr(package, name)) and issubclass(one, Exception)
    }
    return dict(sorted((name, one) for one, name in found.items()))


def _function(name: str, function: Any) -> Iterator[str]:
    if get_args(function):
        yield f"- `{name}`: one of " + ", ".join(f'`"{status}"`' for status in get_args(function)) + "."
        return
    if not callable(function):
        yield f"- `{name}`: where references begin (`ref.state.user`)."
        return
    yield from _item(f"{name}{signature(function)}", function)


def _class(name: str, one: type) -> Iterator[str]:
    yield from ("", f"### `{name}`", "")
    yield brief(one)
    yield ""
    if is_dataclass(one):
        yield "- Fields: " + ", ".join(f"`{each.name}`" for each in fields(one)) + "."
    elif "__init__" in vars(one) and not name.endswith(("Run", "Ref", "DeadLetters", "DraftCall")):
        yield f"- `{name}{signature(one)}`"
    if one.__name__.startswith("Async"):
        yield f"- Everything else is as in `{one.__name__.removeprefix('Async')}`, to be awaited."
        return
    inherited = vars(ReadableRun) if one is acts_celery.Run else {}
    for member, value in {**vars(one), **inherited}.items():
        if member.startswith("_") or member in _NOT_FOR_USERS:
            continue
        if isinstance(value, property):
            yield from _item(f".{member}", value)
        elif inspect.isfunction(value):
            yield from _item(f".{member}{signature(value)}", value)


def _item(head: str, documented: Any) -> Iterator[str]:
    said = brief(documented)
    yield f"- `{head}`" + (f": {said}" if said else "")


def brief(documented: Any) -> str:
    """The first sentence of a docstring, and the names of what is raised."""
    text = sentence(documented)
    first = re.split(r"(?<=\.) (?=[A-Z`])", text, maxsplit=1)[0]
    raised = dict.fromkeys(_RAISED.findall(text.partition("Raises ")[2]))
    known = [name for name in raised if name in _ERRORS]
    return f"{first} Raises {', '.join(f'`{name}`' for name in known)}." if known and "Raises" not in first else first


def signature(function: Callable[..., Any]) -> str:
    """The parameters with their defaults, and what is returned where that is not nothing."""
    found = inspect.signature(function)
    parameters = [each.replace(annotation=inspect.Parameter.empty) for each in found.parameters.values()]
    shown = found.replace(
        parameters=[each for each in parameters if each.name != "self"], return_annotation=inspect.Signature.empty
    )
    returned = (
        _plain(found.return_annotation) if found.return_annotation not in (found.empty, "None", "Any", None) else ""
    )
    return f"{shown}" + (f" -> {returned}" if returned and not inspect.isclass(function) else "")


def sentence(documented: Any) -> str:
    """A docstring on one line, without what only readers of the code need."""
    text = (inspect.getdoc(documented) or "").split("\n\n    ")[0]
    return _RULES.sub("", " ".join(text.split()))


def _plain(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return text


_ERRORS: Final = {name.rpartition(".")[2] for name in public_errors()} | {"TypeError", "ValueError", "LookupError"}
