"""What a notebook shows of a run's result: counts, failures first, values cut. Everything in it is escaped."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

_MOST_ROWS: Final = 20
_MOST_CHARACTERS: Final = 200
_URGENT: Final = ("failed", "held", "running", "waiting", "skipped")


def counted(statuses: Iterable[str]) -> str:
    """How many calls stand how: `2 done, 1 failed`."""
    return ", ".join(f"{count} {status}" for status, count in Counter(statuses).items())


def html(document: Mapping[str, Any]) -> str:
    """A result, from its document (`Result.to_dict`), as two tables: its calls, and what each instance has come to."""
    calls = sorted(
        document["calls"], key=lambda call: _URGENT.index(call["status"]) if call["status"] in _URGENT else len(_URGENT)
    )
    data = [("", document["global"]), *document["instances"].items()]
    output = [] if document["output"] is None else [f"<p>output: <code>{_shown(document['output'])}</code></p>"]
    why = [f"<p>{escape(document['reason'])}</p>"] if "reason" in document else []
    head = f"<b>{escape(document['status'])}</b> {escape(counted(call['status'] for call in calls))}"
    return "".join(
        [
            f"<p>{head} <small>{escape(document['run'])}</small></p>",
            *why,
            *output,
            _table(
                ("call", "tool", "instance", "status", ""),
                [
                    (
                        call["index"],
                        call["tool"],
                        call["instance"] or "",
                        call["status"],
                        call["reason"] or call["error"],
                    )
                    for call in calls
                ],
            ),
            _table(("instance", "data"), [(name, values) for name, values in data if values]),
        ]
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    more = len(rows) - _MOST_ROWS
    left_out = f"<p>and {more} more</p>" if more > 0 else ""
    lines = (_row("td", map(_shown, row)) for row in rows[:_MOST_ROWS])
    return f"<table>{_row('th', heads)}{''.join(lines)}</table>{left_out}" if rows else ""


def _row(cell: str, values: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{cell}>{value}</{cell}>" for value in values) + "</tr>"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else "" if value in (None, {}) else json.dumps(value, ensure_ascii=False)
    return escape(text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…")
