"""The scripted model: answers from a file, for tests, examples and use offline (`ACTS_MODEL=scripted:FILE`).

    [{"when": "Привет", "output": "Hello"},
     {"when": ["translator", "Bonjour"], "answer": {"calls": [], "output": "Hello"}, "times": 1}]

The first entry counts whose `when` texts all occur in the messages of the request, whose `asked` is the request's
digest, and which has not been used `times` times, over all processes of an `acts worker`; what is left out always fits.
`output` is short for an answer of no calls. A text answer is what the model writes, letter by letter: so that answers
can be wrong, too. `error` is an error of `models.errors` instead, by its `type` and `message`, behind the `text` that
came before it. `model` and `usage` are what the answer says of itself. `request` is what was asked, where the entry was
recorded (see `recording`): it is for readers.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .errors import BadRequest
from .request import Answer, ModelRequest, OnText
from .request_difference import difference
from .script_entries import Entry, given, read_entries

_MOST_BYTES: Final = 1_000_000


class NoAnswer(BadRequest):
    """A script has no answer to a request."""


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

    def __init__(self, entries: Sequence[Entry], path: Path = Path(), counted: Uses | None = None) -> None:
        self.entries = [*entries]
        self._path = path
        self._uses = counted or Uses()

    @classmethod
    def load(cls, path: Path) -> ScriptedModel:
        """Read the entries from a file. Raises `WorkerError`."""
        return cls(read_entries(path), path.resolve(), uses)

    async def ask(self, request: ModelRequest, on_text: OnText) -> Answer:
        """The first answer that fits. Raises `NoAnswer`, and the error that stands in its place."""
        said, digest = request.text, request.digest
        for index, entry in enumerate(self.entries):
            times = entry.get("times")
            if _fits(entry, said, digest) and (times is None or self._uses.take(f"{self._path} {index}", times)):
                answer, error = given(entry, f"scripted:{self._path.name}")
                on_text(answer.text)
                if error is not None:
                    raise error
                return answer
        asked = difference(request, [entry["request"] for entry in self.entries if "request" in entry])
        raise NoAnswer(f"the scripted model has no answer to this request{asked}")


def _fits(entry: Entry, said: str, digest: str) -> bool:
    when = entry.get("when", [])
    texts = [when] if isinstance(when, str) else when
    # Data stands in a message as JSON: a quote in it has a backslash before it.
    is_said = all(text in said or json.dumps(text, ensure_ascii=False)[1:-1] in said for text in texts)
    return is_said and entry.get("asked", digest) == digest
