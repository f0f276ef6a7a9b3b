"""Entries of a script or a recording: reading a file of them, what one answers, and making one of an answer.

A file is a JSON list of entries, or has one entry on each line (JSON lines), as a recording has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from acts_celery.worker.errors import WorkerError

from .errors import (
    BadRequest,
    ContextTooLong,
    InvalidAnswer,
    ModelError,
    RateLimited,
    Refused,
    Truncated,
    Unreachable,
)
from .request import Answer, ModelRequest, Usage, count_of

Entry = Mapping[str, Any]

_TYPES: Final = {"asked": str, "model": str, "words": str, "provider_data": str, "request": dict, "usage": dict}
_ANSWERS: Final = {"output", "answer", "error"}
_KEYS: Final = {"when", "times", *_TYPES, *_ANSWERS}
_SHAPE: Final = (
    'a list of {"when": TEXT or [TEXTS], "output": VALUE} or {"when": …, "answer": {"calls": […], …}} or '
    '{"when": …, "error": {"type": "RateLimited", "message": TEXT}}'
)
_KINDS: Final = (BadRequest, ContextTooLong, InvalidAnswer, RateLimited, Refused, Truncated, Unreachable)
_ERRORS: Final[Mapping[str, type[ModelError]]] = {kind.__name__: kind for kind in _KINDS}


def read_entries(path: Path) -> list[Entry]:
    """The entries of a file. Raises `WorkerError`."""
    try:
        text = path.read_text(encoding="utf-8")
        entries = json.loads(text) if text.lstrip().startswith(("[", "{\n")) else list(_lines(text))
    except OSError as error:
        raise WorkerError(f"the scripted model cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise WorkerError(f"the scripted model's {path} is not JSON: {error}") from error
    if not isinstance(entries, list):
        raise WorkerError(f"the scripted model's {path} must be {_SHAPE}")
    for index, entry in enumerate(entries):
        if not _is_entry(entry):
            raise WorkerError(f"the scripted model's {path}, entry {index}: it must be {_SHAPE}")
    return entries


def entry_of(request: ModelRequest, answered: Answer | ModelError) -> dict[str, Any]:
    """What is recorded: the request, by its digest and for readers, and its answer or error."""
    answer = answered.answer if isinstance(answered, ModelError) else answered
    found: dict[str, Any] = {}
    if isinstance(answered, ModelError):
        text = {"text": answer.text} if answer is not None and answer.text else {}
        found["error"] = {"type": type(answered).__name__, "message": str(answered), **text}
    else:
        beside = {"words": answered.words, "provider_data": answered.provider_data}
        found |= {"answer": answered.text, **{key: text for key, text in beside.items() if text}}
    if answer is not None:
        found |= {"model": answer.model, **({"usage": answer.usage.to_dict()} if answer.usage is not None else {})}
    return recorded(request, found)


def recorded(request: ModelRequest, answer: Mapping[str, Any]) -> dict[str, Any]:
    """An entry that holds for this request alone, which it shows to readers."""
    return {"asked": request.digest, **answer, "request": request.shown}


def given(entry: Entry, name: str) -> tuple[Answer, ModelError | None]:
    """What an entry answers, under a name where it says no model, and the error that ends it."""
    error = entry.get("error")
    usage = Usage(**entry["usage"]) if "usage" in entry else None
    text, words = _text(entry) if error is None else error.get("text", ""), entry.get("words", "")
    own = entry.get("provider_data", "")
    answer = Answer(text, entry.get("model", name), usage, words=words, provider_data=own)
    if error is None:
        return answer, None
    return answer, _ERRORS[error["type"]](error["message"], answer=answer if usage or answer.text else None)


def _lines(text: str) -> Iterator[Any]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from error


def _text(entry: Entry) -> str:
    answer = entry.get("answer", {"calls": [], "output": entry.get("output")})
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or not entry.keys() <= _KEYS or len(entry.keys() & _ANSWERS) != 1:
        return False
    when, times = entry.get("when", []), entry.get("times", 1)
    texts = [when] if isinstance(when, str) else when
    return (
        isinstance(texts, list)
        and all(isinstance(text, str) for text in texts)
        and isinstance(times, int)
        and not isinstance(times, bool)
        and times >= 1
        and isinstance(entry.get("answer", {}), dict | str)
        and all(isinstance(entry[key], kind) for key, kind in _TYPES.items() if key in entry)
        and ("error" not in entry or _is_error(entry["error"]))
        and ("usage" not in entry or _is_usage(entry["usage"]))
    )


def _is_error(error: Any) -> bool:
    return (
        isinstance(error, dict)
        and error.keys() <= {"type", "message", "text"}
        and error.get("type") in _ERRORS
        and isinstance(error.get("message"), str)
        and isinstance(error.get("text", ""), str)
    )


def _is_usage(usage: Mapping[str, Any]) -> bool:
    counts = {key: value for key, value in usage.items() if key != "is_whole"}
    known = {"input", "output", "cached"}
    is_counted = {"input", "output"} <= counts.keys() <= known and all(
        count_of(one) is not None for one in counts.values()
    )
    return is_counted and isinstance(usage.get("is_whole", True), bool)
