"""The scripted model: answers from a file, for tests, examples and use offline (`ACTS_MODEL=scripted:FILE`).

    [{"when": "Привет", "output": "Hello"},
     {"when": ["translator", "Bonjour"], "answer": {"calls": [], "output": "Hello"}, "times": 1}]

The first entry counts whose `when` texts all occur in the messages of the request, whose `asked` is the request's
digest, and which has not been used `times` times, over all processes of an `acts worker`; what is left out always fits.
`output` is short for an answer of no calls. A text answer is what the model writes, letter by letter: so that answers
can be wrong, too. `error` is an error of `registry.models` instead, by its `type` and `message`, behind the `text` that
came before it. `model` and `usage` are what the answer says of itself. `request` is what was asked, where the entry was
recorded (see `RecordedModel`): it is for readers.
"""

from __future__ import annotations

import asyncio
import fcntl
import inspect
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import SequenceMatcher
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import Any, Final

from ...broker_config import ConfiguredModel
from ...protocol.analysis.sample_values import sample
from ...protocol.errors import json_text
from ...protocol.limits import MOST
from ...protocol.schemas import compiled, referred
from .. import limits
from ..errors import WorkerError
from ..registry import models
from .clients import without_key

# The difference between a request and the recorded one that is most like it, in words for people.


def difference(request: models.ModelRequest, recorded: Sequence[Mapping[str, Any]]) -> str:
    """The first difference of a request from the most similar recorded one; empty where none was recorded."""
    if not recorded:
        return ""
    ours = _parts(request.shown)
    number, nearest = max(enumerate(map(_parts, recorded), start=1), key=lambda each: _likeness(ours, each[1]))
    return f"; of {len(recorded)} recorded requests the nearest is number {number}: {_first_difference(ours, nearest)}"


def _parts(request: Mapping[str, Any]) -> dict[str, str]:
    """The texts of a request by name: its messages in order, its settings, its schema."""
    messages = request.get("messages")
    named = enumerate(messages if isinstance(messages, list) else ())
    found = {f"message {number}": _part_text(message) for number, message in named}
    return found | {f"its {name}": _part_text(request.get(name)) for name in ("settings", "schema")}


def _likeness(ours: Mapping[str, str], theirs: Mapping[str, str]) -> tuple[float, bool]:
    """The number of equal messages before the first that differs, plus how similar that one is."""
    pairs = [(name, ours.get(name, ""), theirs.get(name, "")) for name in {**ours, **theirs} if "message" in name]
    equal = next((at for at, (_, one, other) in enumerate(pairs) if one != other), len(pairs))
    _, one, other = pairs[equal] if equal < len(pairs) else ("", "", "")
    likeness = SequenceMatcher(None, one[: limits.SCRIPTED_COMPARED], other[: limits.SCRIPTED_COMPARED]).quick_ratio()
    return equal + likeness, ours["its settings"] == theirs["its settings"]


def _first_difference(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    for name in max(ours, theirs, key=len):
        now, then = ours.get(name), theirs.get(name)
        if now is None or then is None:
            change = "not there any more" if now is None else "new"
            return f"{name} is {change}: {(now or then or '')[: limits.AROUND]}"
        if now != then:
            pairs = enumerate(zip_longest(now, then))
            at = next(at for at, (one, other) in pairs if one != other)
            start = max(at - limits.AROUND, 0)
            now, then = (f"{'…' if start else ''}{each[start : at + limits.AROUND]}" for each in (now, then))
            return f"in {name} stood {then!r} where now is {now!r}"
    return "it was recorded as another version reads it"


def _part_text(value: Any) -> str:
    """A message as `role: content`, and any other value as JSON."""
    if isinstance(value, Mapping) and value.keys() == {"role", "content"} and isinstance(value["content"], str):
        return f"{value['role']}: {value['content']}"
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


# Entries of a script or a recording: reading a file of them, what one answers, and making one of an answer.
#
# A file is a JSON list of entries, or has one entry on each line (JSON lines), as a recording has.

Entry = Mapping[str, Any]

_SHAPE: Final = (
    'a list of {"when": TEXT or [TEXTS], "output": VALUE} or {"when": …, "answer": {"calls": […], …}} or '
    '{"when": …, "error": {"type": "RateLimited", "message": TEXT}}'
)
_KINDS: Final = (
    models.BadRequest,
    models.ContextTooLong,
    models.InvalidAnswer,
    models.RateLimited,
    models.Refused,
    models.Truncated,
    models.Unreachable,
)
_ERRORS: Final[Mapping[str, type[models.ModelError]]] = {kind.__name__: kind for kind in _KINDS}
_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer", "minimum": 0, "maximum": MOST}
_ENTRY: Final = {
    "type": "object",
    "properties": {
        "when": {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]},
        "times": {"type": "integer", "minimum": 1},
        "output": True,
        "answer": {"type": ["object", "string"]},
        "error": {
            "type": "object",
            "properties": {"type": {"enum": [*_ERRORS]}, "message": _TEXT, "text": _TEXT},
            "required": ["type", "message"],
            "additionalProperties": False,
        },
        "usage": {
            "type": "object",
            "properties": {"input": _COUNT, "output": _COUNT, "cached": _COUNT, "is_whole": {"type": "boolean"}},
            "required": ["input", "output"],
            "additionalProperties": False,
        },
        "request": {"type": "object"},
        **dict.fromkeys(("asked", "model", "words", "provider_data"), _TEXT),
    },
    "oneOf": [{"required": [name]} for name in ("output", "answer", "error")],
    "additionalProperties": False,
}
"""The schema of an entry."""


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
    schema = compiled(_ENTRY)
    for index, entry in enumerate(entries):
        if schema.problems(entry):
            raise WorkerError(f"the scripted model's {path}, entry {index}: it must be {_SHAPE}")
    return entries


def entry_of(request: models.ModelRequest, answered: models.Answer | models.ModelError) -> dict[str, Any]:
    """The entry of a recording: the request, by its digest and for readers, and its answer or error."""
    answer = answered.answer if isinstance(answered, models.ModelError) else answered
    found: dict[str, Any] = {}
    if isinstance(answered, models.ModelError):
        text = {"text": answer.text} if answer is not None and answer.text else {}
        found["error"] = {"type": type(answered).__name__, "message": str(answered), **text}
    else:
        others = {"words": answered.words, "provider_data": answered.provider_data}
        found |= {"answer": answered.text, **{key: text for key, text in others.items() if text}}
    if answer is not None:
        found |= {"model": answer.model, **({"usage": answer.usage.to_dict()} if answer.usage is not None else {})}
    return request.recorded(found)


def answer_of(entry: Entry, name: str) -> tuple[models.Answer, models.ModelError | None]:
    """The answer of an entry, by `name` where the entry names no model, and the error that ends it."""
    error = entry.get("error")
    usage = models.Usage(**entry["usage"]) if "usage" in entry else None
    text, words = _text(entry) if error is None else error.get("text", ""), entry.get("words", "")
    own = entry.get("provider_data", "")
    answer = models.Answer(text, entry.get("model", name), usage, words=words, provider_data=own)
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


class NoAnswer(models.BadRequest):
    """A script has no answer to a request."""


class Uses:
    """The uses of entries: counted in this process, or in a file that several processes have open."""

    def __init__(self) -> None:
        self.shared_file: int | None = None
        """The descriptor of that file."""
        self._own: dict[str, int] = {}

    def take(self, entry: str, times: int) -> bool:
        """Count one more use of an entry; false, and not counted, where it has had `times`."""
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
            counts = json.loads(os.pread(self.shared_file, limits.SCRIPTED_MOST_BYTES, 0) or b"{}")
            yield counts
            os.pwrite(self.shared_file, json.dumps(counts).encode(), 0)
        finally:
            fcntl.lockf(self.shared_file, fcntl.LOCK_UN)


uses: Final = Uses()
"""The uses of the files that this process has read."""


class ScriptedModel(models.Model):
    """A model that answers from a list of entries (see above)."""

    def __init__(self, entries: Sequence[Entry], path: Path = Path(), counted: Uses | None = None) -> None:
        self.entries = [*entries]
        self._path = path
        self._uses = counted or Uses()

    @classmethod
    def load(cls, path: Path) -> ScriptedModel:
        """Read the entries from a file. Raises `WorkerError`."""
        return cls(read_entries(path), path.resolve(), uses)

    async def ask(self, request: models.ModelRequest, on_text: models.OnText) -> models.Answer:
        """The answer of the first entry that fits. Raises its error, and `NoAnswer` where none fits."""
        text, digest = request.text, request.digest
        for index, entry in enumerate(self.entries):
            times = entry.get("times")
            if _fits(entry, text, digest) and (times is None or self._uses.take(f"{self._path} {index}", times)):
                answer, error = answer_of(entry, f"scripted:{self._path.name}")
                on_text(answer.text)
                if error is not None:
                    raise error
                return answer
        asked = difference(request, [entry["request"] for entry in self.entries if "request" in entry])
        raise NoAnswer(f"the scripted model has no answer to this request{asked}")


def _fits(entry: Entry, messages: str, digest: str) -> bool:
    when = entry.get("when", [])
    texts = [when] if isinstance(when, str) else when
    # Data in a message is JSON: a quote in it has a backslash before it.
    has_texts = all(text in messages or json.dumps(text, ensure_ascii=False)[1:-1] in messages for text in texts)
    return has_texts and entry.get("asked", digest) == digest


# Recording a model: its answers are kept in a file by their requests, and given again for equal ones.
#
# A line of the file is an entry of a script: `asked` is the digest of the request's messages, schema and settings,
# `request` is the request, and `answer`, `model` and `usage`, or `error`, are the answer. `ACTS_MODEL=scripted:FILE`
# reads such a file, and asks no model. Keys do not get into it.


class RecordedModel(models.Model):
    """A model whose answers are kept in a file: recorded requests are answered from it, others are asked and added."""

    def __init__(self, model: models.Model, configured: ConfiguredModel, path: Path) -> None:
        """Raises `WorkerError` where the file cannot be read, or written."""
        self.model = model
        self._configured = configured
        self._path = path
        try:
            path.touch()
        except OSError as error:
            raise WorkerError(f"model {configured.model}: its recording {path}: {error.strerror}") from error
        self._script = ScriptedModel.load(path)

    async def ask(self, request: models.ModelRequest, on_text: models.OnText) -> models.Answer:
        """The answer that was recorded, else the model's own. Raises `ModelError`.

        An error that may pass is not recorded; an answer that is refused or cut off is, as it has to be paid for.
        """
        try:
            return await self._script.ask(request, on_text)
        except NoAnswer:
            pass
        try:
            answer = await self.model.ask(request, on_text)
        except (models.Refused, models.Truncated, models.InvalidAnswer) as error:
            await self._add(request, error)
            raise
        await self._add(request, answer)
        return answer

    async def prepare(self) -> None:
        """Load what the model takes to be asked."""
        await self.model.prepare()

    async def names(self, seconds: float) -> list[str] | None:
        """The names of the endpoint's models, as the model gives them."""
        return await self.model.names(seconds)

    async def close(self) -> None:
        """Close the model's connections."""
        await self.model.close()

    async def _add(self, request: models.ModelRequest, answered: models.Answer | models.ModelError) -> None:
        entry: dict[str, Any] = entry_of(request, answered)
        self._script.entries.append(entry)
        await asyncio.to_thread(self._write, without_key(json_text(entry), self._configured) + "\n")

    def _write(self, line: str) -> None:
        # The file holds prompts: only its owner may read a new one.
        number = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(number, "a", encoding="utf-8", errors="backslashreplace") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)  # other processes of the worker write to it, too
            file.write(line)


# A model of a test: it gives the answers that it was made with, and keeps its requests.
#
#     find = {"_tool": "find", "order": "A-1", "_outputPath": "†state.found"}
#     model = acts.model({"calls": [find]}, {"output": "†state.found"})
#
# An answer is a dictionary or any other JSON value, the text as a model would write it, an `Answer` with its `usage`,
# an error that is raised (`RateLimited("…")`), or a function of `(messages, schema, config)` that gives one of these; a
# coroutine function, too. The answers come in their order, one for each request; a function at the end answers
# all that follow.
#
# A generator function streams its answer in pieces. The code between two `yield` runs in the midst of the answer:
#
#     async def slowly(messages, schema, config):
#         yield '{"calls": [{"_tool": "find", "order": "A-1", "_outputPath": "†state.found"}'
#         await found.wait()                  # the call runs before the answer has ended
#         yield '], "output": "†state.found"}'
#         raise Unreachable("gone")           # or a stream that breaks off


class FakeModel:
    """A model of a test, without a network. `requests` are its requests, the first one first."""

    def __init__(self, answers: Sequence[Any]) -> None:
        self.requests: list[models.ModelRequest] = []
        self._answers = answers
        self._counting = threading.Lock()

    async def answer(self, messages: Sequence[Mapping[str, Any]], schema: Any, config: Mapping[str, Any]) -> Any:
        """Answer as a registered model: with an `Answer`, or a generator of its pieces. Raises an error that takes the
        place of an answer, and `BadRequest` where no answer is left.
        """
        with self._counting:
            self.requests.append(models.ModelRequest(messages, schema, config))
            number = len(self.requests)
        reply = self._answers[min(number, len(self._answers)) - 1]
        if not _is_function(reply) and number > len(self._answers):
            raise models.BadRequest(
                f"the test has given this model {_counted(len(self._answers))}, and it is asked once more: give it "
                "another answer, or a function as the last one"
            )
        if _is_function(reply):
            reply = await _called(reply, messages, schema, config)
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, models.Answer) or inspect.isgenerator(reply) or inspect.isasyncgen(reply):
            return reply
        return models.Answer(models.answer_text(reply), str(config.get("model", "fake")))


def _counted(answers: int) -> str:
    return "1 answer" if answers == 1 else f"{answers} answers"


def _is_function(reply: Any) -> bool:
    return callable(reply) and not isinstance(reply, type)


async def _called(function: Callable[..., Any], *arguments: Any) -> Any:
    """The answer of a function; a plain one runs on a thread, since it may take long."""
    reply = await asyncio.to_thread(function, *arguments)
    return await reply if inspect.isawaitable(reply) else reply


# Answers at random: a model that tries the tools of a test with any values that their schemas admit.
#
#     acts.model(random_answers(seed=7))
#
# An answer has up to three calls, or an output. Parameters are values of the tool's schema, odd ones included (empty
# texts, least and largest numbers, omitted properties), and now and then a reference to a value that an earlier call of
# the answer writes. The same seed and request give the same answer. A value that the whole schema refuses is made anew,
# and at last as plain as it can be: a call that the engine still refuses is an error that its next request shows.

_TEXTS: Final = ("", "a", "O'Brien", "0", "null", "двойка ②", "line\nbreak", "<b>&amp;</b>", "x" * 300)
_NUMBERS: Final = (0, 1, -1, 2, 7, 100, 10**9)


def random_answers(seed: int = 0) -> Callable[[Sequence[Mapping[str, Any]], Any, Mapping[str, Any]], dict[str, Any]]:
    """A function that can be a model of a test (`acts.model(random_answers(7))`): it answers at random."""

    def answer(messages: Sequence[Mapping[str, Any]], schema: Any, config: Mapping[str, Any]) -> dict[str, Any]:
        return _Dice(schema, Random(f"{seed} {models.ModelRequest(messages, schema, config).digest}")).answer()

    return answer


class _Dice:
    """Draws one answer to a request of this schema."""

    def __init__(self, root: Any, random: Random) -> None:
        self._root = root if isinstance(root, dict) else {}
        self._random = random
        self._written: list[str] = []

    def answer(self) -> dict[str, Any]:
        """The answer: calls, or an output."""
        parts = self._root.get("properties", {})
        outputs = self._alternatives(parts.get("output", {}))
        output: Any = next((each for each in outputs if each != {"type": "null"}), {})
        tools = [each for each in self._alternatives(parts.get("calls", {}).get("items")) if each]
        if not tools or self._random.random() < 1 / 3:
            return {**({"calls": []} if "calls" in parts else {}), "output": self._valid(output)}
        calls = []
        for _ in range(self._random.randint(1, limits.SCRIPTED_MOST_CALLS)):
            calls.append(call := self._valid(self._random.choice(tools)))
            if isinstance(call, dict) and "_outputPath" in call:
                self._written.append(str(call["_outputPath"]))
        return {"calls": calls, "output": None}

    def _valid(self, schema: Any) -> Any:
        whole = compiled(self._whole(schema))
        drawn = (self._value(schema, 0) for _ in range(limits.SCRIPTED_TRIES))
        return next((value for value in drawn if not whole.problems(value)), self._plain(schema))

    def _value(self, schema: Any, depth: int) -> Any:
        schema = self._random.choice(self._alternatives(schema))
        if not isinstance(schema, dict) or depth > limits.SCRIPTED_DEPTH:
            return self._plain(schema)
        if "anyOf" in schema or "oneOf" in schema:
            return self._value(schema, depth + 1)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._random.choice(schema["enum"])
        if "properties" in schema:
            return self._object(schema, depth)
        if schema.get("type") == "array" and "prefixItems" not in schema:
            least = schema.get("minItems", 0)
            size = self._random.randint(least, min(schema.get("maxItems", least + 3), least + 3))
            return [self._value(schema.get("items", True), depth + 1) for _ in range(size)]
        if schema.get("type") == "boolean":
            return self._random.random() < 1 / 2
        return self._leaf(schema)

    def _leaf(self, schema: Mapping[str, Any]) -> Any:
        if "format" in schema:
            return self._plain(schema)
        known = {"string": _TEXTS, "integer": _NUMBERS, "number": (*_NUMBERS, 0.5, -1e-9)}
        ends = [schema[key] for key in ("minimum", "maximum") if key in schema]
        kind = schema.get("type")
        return self._random.choice([*known.get(kind if isinstance(kind, str) else "", ()), *ends, self._plain(schema)])

    def _plain(self, schema: Any) -> Any:
        return sample(self._whole(schema))

    def _whole(self, schema: Any) -> Any:
        return {**schema, "$defs": self._root.get("$defs", {})} if isinstance(schema, dict) else schema

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        required, found = schema.get("required", ()), dict[str, Any]()
        is_call = depth == 0 and "_tool" in schema["properties"]
        for key, below in schema["properties"].items():
            is_parameter = is_call and not key.startswith("_")
            odds = 1 / 2 if is_parameter or not is_call else 0  # a model leaves out what it need not say of a call
            odds = 1 if is_call and key == "_outputPath" and isinstance(below, dict) and "const" not in below else odds
            if below is False or (key not in required and self._random.random() >= odds):
                continue
            if is_parameter and self._written and self._random.random() < limits.ODDS_OF_REFERENCE:
                found[key] = self._random.choice(self._written)
            elif is_call and key == "_outputPath" and any(map(_is_of_engine, self._branches(below))):
                found[key] = f"†state.r{len(self._written)}"
            else:
                found[key] = self._value(below, depth + 1)
        return found

    def _alternatives(self, schema: Any) -> list[Any]:
        """The branches of a schema without those of references and templates; itself where it has none."""
        branches = self._branches(schema)
        return [branch for branch in branches if not _is_of_engine(branch)] or branches

    def _branches(self, schema: Any) -> list[Any]:
        schema = self._followed(schema)
        listed = schema.get("anyOf") or schema.get("oneOf") if isinstance(schema, dict) else None
        return list(map(self._followed, listed)) if listed else [schema]

    def _followed(self, schema: Any) -> Any:
        for _ in range(limits.SCRIPTED_DEPTH):
            if not isinstance(schema, dict) or "$ref" not in schema:
                break
            schema = referred(schema["$ref"], self._root)
        return schema


def _is_of_engine(schema: Any) -> bool:
    return isinstance(schema, dict) and "†" in str(schema.get("pattern", ""))
