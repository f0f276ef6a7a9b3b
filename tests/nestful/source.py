"""The NESTFUL files as they were written: flows of calls and the tools they name, nothing redis_errors yet.

Two pairs of files share one namespace of instances and of tools. A tool may be listed several times as long
as every listing says the same; two different tools of one name are a `Collision`, never a silent choice.
"""

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULT_TOOL = "var_result"  # NESTFUL's last call of each flow: collects the final values, is in no spec
RESULT_KEY = "result"  # where those values are put, beside the labels

_FILES = (("e", "executable", True), ("g", "non-executable-glaive", False))
_PARAMETER_GROUPS = ("query_parameters", "path_parameters", "parameters")


class Collision(ValueError):
    """Two specs of the same name differ, or one spec lists a parameter in two groups."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call as NESTFUL writes it; `label` is None only for `var_result`."""

    name: str
    arguments: Mapping[str, Any]
    label: str | None


@dataclass(frozen=True, slots=True)
class Flow:
    """One sequence: the user's request and the calls that answer it, in order."""

    instance: str
    request: str
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool's spec: parameters and outputs by name in NESTFUL's own type language."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    outputs: Mapping[str, Any]
    remote: bool  # an HTTP endpoint (the "executable" half of the data)


@dataclass(frozen=True, slots=True)
class Dataset:
    """Everything in the folder: all flows in file order, all tools by name."""

    flows: tuple[Flow, ...]
    tools: Mapping[str, Tool]


def find_data() -> Path | None:
    """The folder named by `ACTS_NESTFUL`, else the one beside the repository; None when there is none."""
    named = os.environ.get("ACTS_NESTFUL")
    folder = Path(named) if named else Path(__file__).resolve().parents[3] / "shared" / "data" / "nestful"
    return folder if holds_data(folder) else None


def holds_data(folder: Path) -> bool:
    """Whether all four files are there."""
    return all((folder / f"{stem}-{half}.json").is_file() for _, stem, _ in _FILES for half in ("data", "spec"))


def load(folder: Path) -> Dataset:
    """Read both halves.

    Raises:
        Collision: if the specs contradict each other.
        OSError, json.JSONDecodeError: if a file is missing or broken.
    """
    flows: list[Flow] = []
    tools: list[Tool] = []
    for prefix, stem, remote in _FILES:
        flows += [_flow(f"{prefix}{n}", entry) for n, entry in enumerate(_read(folder / f"{stem}-data.json"))]
        tools += [_tool(entry, remote=remote) for entry in _read(folder / f"{stem}-spec.json")]
    return Dataset(tuple(flows), namespace(tools))


def namespace(tools: Iterable[Tool]) -> dict[str, Tool]:
    """One name, one tool: equal listings fold into one.

    Raises:
        Collision: if two listings of a name differ, or one takes the name of the collecting call.
    """
    named: dict[str, Tool] = {}
    for tool in tools:
        if tool.name == RESULT_TOOL or named.setdefault(tool.name, tool) != tool:
            raise Collision(f"tool {tool.name!r} is specified twice, differently")
    return named


def _read(path: Path) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
    return entries


def _flow(instance: str, entry: Mapping[str, Any]) -> Flow:
    calls = tuple(Call(call["name"], call["arguments"], call.get("label")) for call in entry["output"])
    return Flow(instance, entry["input"], calls)


def _tool(entry: Mapping[str, Any], *, remote: bool) -> Tool:
    parameters: dict[str, Any] = {}
    for group in _PARAMETER_GROUPS:
        for name, declared in entry.get(group, {}).items():
            if name in parameters:
                raise Collision(f"tool {entry['name']!r} lists the parameter {name!r} in two groups")
            parameters[name] = declared
    return Tool(entry["name"], entry["description"], parameters, entry["output_parameters"], remote)
