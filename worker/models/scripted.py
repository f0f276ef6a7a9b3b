"""The scripted model: answers from a list, for tests, examples and use offline (`ACTS_MODEL=scripted:FILE.json`).

    [{"when": "Привет", "output": "Hello"},
     {"when": ["translator", "Bonjour"], "answer": {"calls": [], "output": "Hello"}, "times": 1}]

The first entry counts whose `when` texts all occur in the messages of the request, and which has not been used `times`
times, over all processes of an `acts worker`; without `when` an entry always fits, without `times` it is never used up.
`output` is short for an answer of no calls. A text answer is what the model writes, letter by letter: so that answers
can be wrong, too.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from acts_celery.worker.errors import WorkerError

from .errors import BadRequest
from .request import Answer, ModelRequest, OnText

_MOST_BYTES: Final = 1_000_000
_KEYS: Final = {"when", "output", "answer", "times"}
_SHAPE: Final = 'a list of {"when": TEXT or [TEXTS], "output": VALUE} or {"when": …, "answer": {"calls": […], …}}'


class Uses:
    """How often entries were used: counted in this process, or in a file that several processes have open."""

    def __init__(self) -> None:
        self.shared_file: int | None = None
        """The descriptor of that file."""
        self._own: dict[str, int] = {}

    def take(self, entry: str, times: int) -> bool:
        """Use an entry once more, if it has not been used so often."""
        with self._counts() as counts:
            used = counts.get(entry, 0)
            if used < times:
                counts[entry] = used + 1
        return used < times

    @contextmanager
    def _counts(self) -> Iterator[dict[str, int]]:
        if self.shared_file is None:
            yield self._own
            return
        fcntl.lockf(self.shared_file, fcntl.LOCK_EX)
        try:
            counts = json.loads(os.pread(self.shared_file, _MOST_BYTES, 0) or b"{}")
            yield counts
            os.pwrite(self.shared_file, json.dumps(counts).encode(), 0)
        finally:
            fcntl.lockf(self.shared_file, fcntl.LOCK_UN)


uses: Final = Uses()
"""Those of the files that this process has read."""


class ScriptedModel:
    """Answers from a list of entries, which are as described above."""

    def __init__(self, entries: Sequence[Mapping[str, Any]], path: Path = Path(), counted: Uses | None = None) -> None:
        self._entries = entries
        self._path = path
        self._uses = counted or Uses()

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
        return cls(entries, path.resolve(), uses)

    async def ask(self, request: ModelRequest, on_text: OnText) -> Answer:
        """The first answer that fits. Raises `BadRequest`."""
        said = request.text
        for index, entry in enumerate(self._entries):
            times = entry.get("times")
            if _fits(entry, said) and (times is None or self._uses.take(f"{self._path} {index}", times)):
                text = _text(entry)
                on_text(text)
                return Answer(text, f"scripted:{self._path.name}")
        raise BadRequest("the scripted model has no answer to this request")


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
