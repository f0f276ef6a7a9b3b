"""A run as one file: the page, with all that it loads, and of the answers as many as `limits.SERVER_MOST_BYTES` hold.

The file asks nobody: its policy (CSP) lets run only the scripts and styles whose digests stand in it, and load nothing.
The answers are a block of JSON, in which no character is left that could end it. What came first is what is looked for
first: the plan, each call with its errors, then instances, those that failed before the others. What did not fit, the
file says in sentences. It takes no web server, and so no extra.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

from ...protocol.errors import one_line
from .. import limits
from ..errors import NotPossibleNow
from ..store.keys import ENDED_STATUSES
from ..store.scripts import date_of
from .page import Page

ASSETS: Final = Path(__file__).with_name("assets")
_FIRST: Final = ("failed", "held", "running", "paused", "scheduled", "waiting", "skipped", "cancelled")
"""The statuses of which a file holds lists of their own, as far as there is room: what needs attention first."""
_STYLE: Final = re.compile(r'<link rel="stylesheet" href="assets/([\w.-]+)">')
_SCRIPT: Final = re.compile(r'<script src="assets/([\w.-]+)"></script>')
_POLICY: Final = "<!-- acts-policy -->"
_DATA: Final = "<!-- acts-data -->"
_MARKUP: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})

Question = tuple[str, Mapping[str, str]]


def document(page: Page, run: str) -> str:
    """The file of a run; of `page`, which counts whole logs. Raises as `Page.answer`."""
    return _filled((ASSETS / "page.html").read_text(encoding="utf-8"), _data(page, page.find(run)))


def _filled(html: str, data: str) -> str:
    """The page with its styles, its scripts and the data in it, and the policy for them."""
    digests: dict[str, list[str]] = {"style": [], "script": []}

    def inline(tag: str) -> Any:
        def made(found: re.Match[str]) -> str:
            text = (ASSETS / found[1]).read_text(encoding="utf-8")
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            digests[tag].append(f"'sha256-{digest}'")
            return f"<{tag}>{text}</{tag}>"

        return made

    html = _SCRIPT.sub(inline("script"), _STYLE.sub(inline("style"), html))
    sources = "; ".join(f"{tag}-src {' '.join(found)}" for tag, found in digests.items())
    policy = f"default-src 'none'; {sources}; img-src data:; base-uri 'none'; form-action 'none'"
    before, behind = html.split(_POLICY)
    html = f'{before}<meta http-equiv="Content-Security-Policy" content="{policy}">{behind}'
    before, behind = html.split(_DATA)
    return f'{before}<script type="application/json" id="acts-data">{data}</script>{behind}'


def json_block(value: Any) -> str:
    """Write a value as JSON for a block of HTML: nothing in it is markup, or cannot be seen."""
    text = one_line(json.dumps(value, ensure_ascii=False, separators=(",", ":"))).translate(_MARKUP)
    return text.encode("utf-8", "backslashreplace").decode()


def _data(page: Page, run: str) -> str:
    made = date_of(datetime.now(UTC))
    size = sum(path.stat().st_size for path in ASSETS.iterdir())
    answers = _Answers(page, limits.SERVER_MOST_BYTES - size - 20_000)
    overview = answers.add((f"runs/{run}", {}))
    for questions, share in ((_of_plan, 0.3), (_of_calls, 0.4), (_of_instances, 0.1), (_of_some, 0.9), (_of_values, 1)):
        answers.add_all(questions(answers, run), share)
    sentences = list(_sentences(answers, overview))
    about = f'"run":{json_block(run)},"made":{json_block(made)},"sentences":{json_block(sentences)}'
    return f'{{{about},"answers":[{",".join(answers.blocks)}]}}'


class _Answers:
    """The answers of a file, as blocks of JSON, up to so many bytes."""

    def __init__(self, page: Page, most_bytes: int) -> None:
        self._page = page
        self._left = most_bytes
        self.blocks: list[str] = []
        self.found: dict[str, Any] = {}
        """The answers to questions without a query, by their addresses."""
        self.instances: dict[str, None] = {}
        """Instances that the file holds, in their order."""
        self.left_out = 0

    def add(self, question: Question) -> Any:
        """Ask, and take the answer in where there is room."""
        return self._add(question, self._left)

    def add_all(self, questions: Iterator[Question], share: float) -> None:
        """Ask and take in until a share of the room that is left is used. What is gone meanwhile is left out."""
        until = self._left * (1 - share)
        for question in questions:
            try:
                self._add(question, self._left - until)
            except NotPossibleNow:
                continue

    def _add(self, question: Question, most: float) -> Any:
        path, query = question
        answer = self._page.answer(path, query)
        block = json_block([path, dict(query), answer])
        if (size := len(block.encode()) + 1) > most:
            self.left_out += 1
            return answer
        self._left -= size
        self.blocks.append(block)
        if not query:
            self.found[path] = answer
        if path.endswith("/instance") and "name" in query:
            self.instances[query["name"]] = None
        return answer

    def ask(self, path: str, **query: str) -> Any:
        """Ask without taking the answer in."""
        return self._page.answer(path, query)


def _of_plan(answers: _Answers, run: str) -> Iterator[Question]:
    yield f"runs/{run}/plan", {}
    yield f"runs/{run}/held", {}
    yield f"runs/{run}/questions", {}
    yield f"runs/{run}/rules", {}
    yield f"runs/{run}/audit", {}
    if answers.found[f"runs/{run}"]["loop"]:
        yield f"runs/{run}/conversation", {}
        for tick in answers.found.get(f"runs/{run}/plan", {}).get("ticks", ()):
            yield f"runs/{run}/plan", {"tick": str(tick)}
            yield f"runs/{run}/conversation", {"tick": str(tick)}


def _of_calls(answers: _Answers, run: str) -> Iterator[Question]:
    calls = _all_calls(answers, run)
    yield from ((f"runs/{run}/calls/{index}", {}) for index in calls)
    for status in _FIRST:
        yield from ((f"runs/{run}/calls/{index}", {"status": status}) for index, has in calls.items() if status in has)


def _all_calls(answers: _Answers, run: str) -> dict[int, Iterable[str]]:
    """The calls of all ticks, each with the statuses that its instances have."""
    plan = answers.ask(f"runs/{run}/plan")
    plans = [answers.ask(f"runs/{run}/plan", tick=str(tick)) for tick in plan["ticks"]] or [plan]
    return {call["index"]: call["counts"].keys() for each in plans for call in each["calls"]}


def _of_instances(answers: _Answers, run: str) -> Iterator[Question]:
    if answers.found[f"runs/{run}"]["instances"]:
        yield f"runs/{run}/instances", {}
        yield from ((f"runs/{run}/instances", {"status": status}) for status in (*_FIRST, "completed"))


def _of_some(answers: _Answers, run: str) -> Iterator[Question]:
    """The questions about the global part, and about some instances: their calls, values and logs."""
    yield f"runs/{run}/instance", {}
    yield f"runs/{run}/log", {}
    for name in islice(_some_instances(answers, run), limits.SERVER_MOST_INSTANCES):
        yield f"runs/{run}/instance", {"name": name}
        yield f"runs/{run}/log", {"instance": name}


def _some_instances(answers: _Answers, run: str) -> Iterator[str]:
    if not answers.found[f"runs/{run}"]["instances"]:
        return
    seen = set[str]()
    for status in (*_FIRST, None):
        found = answers.ask(f"runs/{run}/instances", **({"status": status} if status is not None else {}))
        for one in found["instances"]:
            if one["instance"] not in seen:
                seen.add(one["instance"])
                yield one["instance"]


def _of_values(answers: _Answers, run: str) -> Iterator[Question]:
    """The values that calls write, where they are global; what delegates and models were given in these instances."""
    calls = [call for call in answers.found.get(f"runs/{run}/plan", {}).get("calls", ()) if not call["note"]]
    for path in dict.fromkeys(path for call in calls for path in call["writes"]):
        yield f"runs/{run}/place", {"path": path}
    asking = [call["index"] for call in calls if call["kind"] != "activity"]
    names = (f"{index}:{name}" for name in answers.instances for index in asking)
    globals_ = (str(index) for index in asking)
    yield from ((f"runs/{run}/sent", {"call": name}) for name in islice((*globals_, *names), limits.MOST_SENT))


def _sentences(answers: _Answers, overview: Mapping[str, Any]) -> Iterator[str]:
    """Sentences on what the file does not hold."""
    if overview["status"] not in ENDED_STATUSES:
        yield f"The run was {overview['status']} then."
    held, total = len(answers.instances), overview["instances"]
    if held < total:
        yield f"This file holds {held:,} of {total:,} instances, those that failed first; `acts ui` shows all."
    if answers.left_out:
        most = limits.SERVER_MOST_BYTES // 1_000_000
        yield f"{answers.left_out:,} answers did not fit into {most} MB and are left out."
