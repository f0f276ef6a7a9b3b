"""A delegate without tools, or a latent call, as one request: its messages, its schema, its answer (SPEC R9.3, R12.1).

The answer is an object whose `output` is the result: providers that enforce a schema want an object.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from protocol.language.messages import read_data
from protocol.schemas import compiled

from .configured import Models
from .errors import InvalidAnswer
from .request import ModelRequest

_INSTRUCTION: Final = 'Answer with one JSON object, {"output": …}, and nothing else.'
_SHOWN_CHARACTERS: Final = 500
_LIMITS: Final = frozenset({"max_output_tokens", "request_seconds"})
_SETTINGS: Final = ("model", "temperature", *sorted(_LIMITS))
_CHAT: Final = {"role", "content"}


async def solve(models: Models, context: Sequence[Mapping[str, Any]], schema: Any, config: Mapping[str, Any]) -> Any:
    """The result, valid by its schema. Raises `ModelError`."""
    messages = list(rendered(context, schema, config.get("tool")))
    answer = await models.ask(ModelRequest(messages, _enveloped(schema), config))
    output = _output(answer.text)
    problems = compiled(schema).problems(output, known=()) if schema is not None else []
    if problems:
        raise InvalidAnswer(
            "the model's answer is not what the schema demands: " + "; ".join(map(str, problems)), answer=answer
        )
    return output


def request_config(outer: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a request: its definition's own, which only tighten the submission's limits (SPEC R13.3)."""
    config = {key: each[key] for each in (outer, own) for key in _SETTINGS if each.get(key) is not None}
    for key in _LIMITS & config.keys():
        config[key] = min(each[key] for each in (outer, own) if each.get(key) is not None)
    return config


def rendered(context: Iterable[Mapping[str, Any]], schema: Any, tool: Any = None) -> Iterator[dict[str, str]]:
    """The request's chat messages: what an answer is, then the context, each message as it is (SPEC R12.5)."""
    about = f"{_INSTRUCTION} `output` is the result of a call of the tool {_json(tool)}." if tool else _INSTRUCTION
    demand = f" `output` fits this JSON Schema: {_json(schema)}" if schema not in (None, True, {}) else ""
    yield {"role": "system", "content": about + demand}
    for message in context:
        yield _chat(message)


def _chat(message: Mapping[str, Any]) -> dict[str, str]:
    if message.keys() == _CHAT and isinstance(message["content"], str):
        return {"role": str(message["role"]), "content": message["content"]}
    type_ = message.get("type")
    if type_ in ("system", "text"):
        said = next((message[key] for key in ("message", "text", "content") if key in message), message)
        role = "system" if type_ == "system" else "user"
        return {"role": role, "content": said if isinstance(said, str) else _json(said)}
    data = read_data(message)
    if data is None:
        return {"role": "user", "content": _json(message)}
    described = f"{message['description']}\n" if "description" in message else ""
    schema = f"Schema: {_json(message['schema'])}\n" if "schema" in message else ""
    return {"role": "user", "content": f"## Data: †{data.kind}\n{described}{schema}{_json(data.payload)}"}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _enveloped(schema: Any) -> dict[str, Any]:
    """The schema of the whole answer."""
    properties = {"output": {} if schema is None else schema}
    return {"type": "object", "properties": properties, "required": ["output"], "additionalProperties": False}


def _output(text: str) -> Any:
    """The output of an answer, which has no calls. Raises `InvalidAnswer`."""
    shown = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
    try:
        solution = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidAnswer(f"the model's answer is no JSON ({error}): {shown}") from None
    if not isinstance(solution, dict) or solution.get("output") is None:
        raise InvalidAnswer(f"the model's answer has no output: {shown}")
    if solution.get("calls"):
        raise InvalidAnswer(f"the model's answer has calls, where there are no tools: {shown}")
    return solution["output"]


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice in an object")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON value")
