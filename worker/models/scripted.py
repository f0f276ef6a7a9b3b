"""The scripted model: answers from a list, for tests, examples and use offline (`ACTS_MODEL=scripted:FILE.json`).

    [{"when": "Привет", "output": "Hello"},
     {"when": ["translator", "Bonjour"], "answer": {"calls": [], "output": "Hello"}, "times": 1}]

The first entry counts whose `when` texts all occur in the messages of the request, and which this process has not used
`times` times; without `when` an entry always fits, without `times` it is never used up. `output` is short for an answer
of no calls. A text answer is what the model writes, letter by letter: so that answers can be wrong, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from worker.errors import WorkerError

from .errors import BadRequest
from .request import Answer, Heard, ModelRequest

_KEYS: Final = {"when", "output", "answer", "times"}
_SHAPE: Final = 'a list of {"when": TEXT or [TEXTS], "output": VALUE} or {"when": …, "answer": {"calls": […], …}}'


class ScriptedModel:
    """Answers from a list of entries, which are as described above."""

    def __init__(self, entries: Sequence[Mapping[str, Any]], name: str = "scripted") -> None:
        self._entries = entries
        self._name = name
        self._used = [0] * len(entries)

    @classmethod
    def load(cls, path: Path) -> ScriptedModel:
        """Read the entries from a JSON file. Raises `WorkerError`."""
        try:
            entries = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise WorkerError(f"the scripted model cannot read {path}: {error.strerror}") from error
        except ValueError as error:
            raise WorkerError(f"the scripted model's {path} is not JSON: {error}") from error
        if not isinstance(entries, list):
            raise WorkerError(f"the scripted model's {path} must be {_SHAPE}")
        for index, entry in enumerate(entries):
            if not _is_entry(entry):
                raise WorkerError(f"the scripted model's {path}, entry {index}: it must be {_SHAPE}")
        return cls(entries, f"scripted:{path.name}")

    async def ask(self, request: ModelRequest, heard: Heard) -> Answer:
        """The first answer that fits. Raises `BadRequest`."""
        said = "\n".join(map(_content, request.messages))
        for index, entry in enumerate(self._entries):
            if self._used[index] < entry.get("times", self._used[index] + 1) and _fits(entry, said):
                self._used[index] += 1
                text = _text(entry)
                heard(text)
                return Answer(text, self._name)
        raise BadRequest("the scripted model has no answer to this request")


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _fits(entry: Mapping[str, Any], said: str) -> bool:
    when = entry.get("when", [])
    texts = [when] if isinstance(when, str) else when
    # Data stands in a message as JSON: a quote in it has a backslash before it.
    return all(text in said or json.dumps(text, ensure_ascii=False)[1:-1] in said for text in texts)


def _text(entry: Mapping[str, Any]) -> str:
    answer = entry.get("answer", {"calls": [], "output": entry.get("output")})
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or not entry.keys() <= _KEYS or ("output" in entry) == ("answer" in entry):
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
    )
