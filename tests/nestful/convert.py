"""NESTFUL into one submission: an instance per flow, `$var1.x$` as `†state.var1.x`, `label` as `_outputPath`.

Only a string that is one reference from end to end becomes an expression. References inside text or
arithmetic ("100 * $var1.Exchange Rate$") and prices ("$100-$200") stay the text they are: a string is an
expression only when it starts with † (SPEC R2.2). Nothing is repaired: unknown tools, missing parameters
and dangling references go through as they are, for `acts check` to report.

Every call of the data has a label except `var_result`, the last of each flow, which collects the final
values. It becomes a tool that returns its parameters and is pinned to `†state.result`. So no call here is
fire and forget.

    python -m tests.nestful.convert --data DIR --out FILE [--valid-only | --invalid-only]
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from . import evaluator
from .source import RESULT_KEY, RESULT_TOOL, Call, Flow, Tool, find_data, holds_data, load

_STEP = re.compile(r"\.(?P<key>[^.\[\]$]+)|\[(?P<index>\d+)\]")
_REFERENCE = re.compile(r"\$(?P<label>[A-Za-z_]\w*)(?P<steps>(?:\.[^.\[\]$]+|\[\d+\])*)\$")
_PLAIN_SEGMENT = re.compile(r"[^\s.\[\]|&†]+")
_RANGE = re.compile(r"(\d+)-(\d+)")

# Every spelling the specs use, in lower case. "Enum" lists strings, "file" and dates travel as text.
_JSON_TYPES = {
    "string": "string",
    "file": "string",
    "enum": "string",
    "date (yyyy-mm-dd)": "string",
    "number": "number",
    "float": "number",
    "integer": "integer",
    "boolean": "boolean",
    "array": "array",
    "object": "object",
}
_ALLOWED = ("enum", "allowed_values", "possible_values")
_KEPT = ("description", "default", "format")


def convert(flows: Iterable[Flow], tools: Mapping[str, Tool]) -> dict[str, Any]:
    """The submission that runs `flows`, each in an instance of its own, with the schemas of all `tools`."""
    context: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for flow in flows:
        context.append({"type": "input", "_instance": flow.instance, "request": flow.request})
        calls += [convert_call(call, flow.instance) for call in flow.calls]
    schemas = {tool.name: convert_tool(tool) for tool in tools.values()}
    return {
        "context": context,
        "solution": {"calls": calls, "output": None},
        "tools": {**schemas, RESULT_TOOL: _result_schema()},
    }


def convert_call(call: Call, instance: str) -> dict[str, Any]:
    """One call: its label becomes its output path, its arguments its parameters."""
    if (call.label is None) != (call.name == RESULT_TOOL) or call.label == RESULT_KEY:
        raise ValueError(f"{instance}: {call.name} has the label {call.label!r}, which has no meaning here")
    if reserved := [name for name in call.arguments if name.startswith("_")]:
        raise ValueError(f"{instance}: {call.name} has parameters that would become meta-properties: {reserved}")
    parameters = {name: convert_value(value) for name, value in call.arguments.items()}
    key = RESULT_KEY if call.label is None else call.label
    return {"_tool": call.name, "_instance": instance, **parameters, "_outputPath": f"†state.{key}"}


def convert_value(value: Any) -> Any:
    """A parameter's value with its references, at any depth, as expressions; all other text stays literal."""
    if isinstance(value, dict):
        return {key: convert_value(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [convert_value(inner) for inner in value]
    if isinstance(value, str):
        return convert_text(value)
    return value


def convert_text(text: str) -> str:
    """`$var1.author[0].id$` -> `†state.var1.author.0.id`; a literal † at the start is escaped (SPEC R2.2)."""
    reference = _REFERENCE.fullmatch(text)
    if reference is None:
        return f"†{text}" if text.startswith("†") else text
    steps = (step["key"] or step["index"] for step in _STEP.finditer(reference["steps"]))
    return f"†state.{reference['label']}" + "".join(_segment(step) for step in steps)


def convert_tool(tool: Tool) -> dict[str, Any]:
    """The tool's JSON Schema. Undeclared parameters are admitted: no spec says that its list is closed."""
    schema = _object_schema(tool.parameters)
    schema["properties"]["_output"] = _object_schema(tool.outputs)
    return {"description": tool.description, **schema}


def convert_declaration(declared: Mapping[str, Any] | str) -> dict[str, Any]:
    """One parameter or output of a spec as JSON Schema; `required: true` is the enclosing object's to say."""
    if isinstance(declared, str):  # a nested property written as {"count": "string"}
        declared = {"type": declared}
    schema: dict[str, Any] = {"type": _JSON_TYPES[declared["type"].lower()]}
    schema |= {key: declared[key] for key in _KEPT if key in declared}
    for key in _ALLOWED:
        schema |= _allowed(declared[key]) if key in declared else {}
    if "items" in declared:
        schema["items"] = convert_declaration(declared["items"])
    if "properties" in declared:
        schema |= _object_schema(declared["properties"])
    if isinstance(declared.get("required"), list):
        schema["required"] = declared["required"]
    return schema


def _object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {key: convert_declaration(inner) for key, inner in properties.items()},
    }
    required = [key for key, inner in properties.items() if isinstance(inner, dict) and inner.get("required") is True]
    return {**schema, "required": required} if required else schema


def _allowed(values: list[Any] | str) -> dict[str, Any]:
    if isinstance(values, list):
        return {"enum": values}
    limits = _RANGE.fullmatch(values)
    if limits is None:
        raise ValueError(f"allowed values {values!r} are neither a list nor a range")
    return {"minimum": int(limits[1]), "maximum": int(limits[2])}


def _result_schema() -> dict[str, Any]:
    return {
        "description": "Collects the final values of a sequence: returns its parameters.",
        "type": "object",
        "properties": {"_outputPath": {"const": f"†state.{RESULT_KEY}"}, "_output": {"type": "object"}},
    }


def _segment(step: str) -> str:
    if _PLAIN_SEGMENT.fullmatch(step):
        return f".{step}"
    return f"[{json.dumps(step, ensure_ascii=False)}]"


def main(arguments: list[str]) -> int:
    """The command line; 0 when the submission was written, 2 when there is no data."""
    parser = argparse.ArgumentParser(prog="python -m tests.nestful.convert", description="NESTFUL -> one submission")
    parser.add_argument("--data", type=Path, default=find_data(), help="folder with NESTFUL's four JSON files")
    parser.add_argument("--out", type=Path, required=True, help="the submission to write")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--valid-only", action="store_true", help="only the sequences that must be accepted")
    which.add_argument("--invalid-only", action="store_true", help="only the sequences that must be rejected")
    options = parser.parse_args(arguments)
    if options.data is None or not holds_data(options.data):
        print("no NESTFUL data: name the folder with --data or ACTS_NESTFUL", file=sys.stderr)
        return 2
    dataset = load(options.data)
    flows = [
        flow
        for flow in dataset.flows
        if not (options.valid_only or options.invalid_only)
        or bool(evaluator.faults(flow, dataset.tools)) == options.invalid_only
    ]
    submission = convert(flows, dataset.tools)
    options.out.write_text(json.dumps(submission, ensure_ascii=False, indent=1), "utf-8")
    print(f"{len(flows)} sequences, {len(submission['solution']['calls'])} calls -> {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
