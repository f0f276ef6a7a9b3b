"""What the client of every side is: a process that does jobs in the order in which it reads them, and times them.

Nothing but the standard library, since peers run this in an environment of their own. Every line is a JSON object:
`{"job", "size"}` comes in, `{"figures": {name: value}}` or `{"error": text}` goes out. A figure counts only if every
result was read back and is right; that they are read belongs to the time, that they are compared does not.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

Figures = dict[str, float]
Job = Callable[[int], Figures]

PAUSE_SECONDS: Final = 0.1
"""How long a call waits where calls wait."""
BRIEF: Final = base64.b85encode(Random(1).randbytes(800)).decode()
"""What a delegate is to see, of a context that holds a document as well; it can hardly be compressed."""
CONTEXT: Final = {"brief": BRIEF, "document": base64.b85encode(Random(2).randbytes(160_000)).decode()}
SLOWLY: Final = "Take your time."
"""What is said to the model that is to take `MODEL_SECONDS`."""
MODEL_SECONDS: Final = 2
TICKS: Final = "The number of ticks is "
"""What is said to the model before the number of ticks in which it is to answer with a call."""


def serve(jobs: Mapping[str, Job]) -> None:
    """Do jobs until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print goes to the log
    for line in sys.stdin:
        order = json.loads(line)
        signal.alarm(deadline_seconds(order["size"]))
        try:
            answer: dict[str, Any] = {"figures": jobs[order["job"]](order["size"])}
        except Exception as error:  # whatever it is, it is the answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        signal.alarm(0)
        print(json.dumps(answer), file=answers, flush=True)


def deadline_seconds(size: int) -> int:
    """How long a job may take: one that takes longer ends its client."""
    return 300 + size // 50


def rate(size: int, work: Callable[[], object], wanted: object) -> Figures:
    """How many of `size` units are done in a second by `work`, which returns what it has read back."""
    start = time.perf_counter()
    found = work()
    seconds = time.perf_counter() - start
    expect(found, wanted)
    return {"per second": size / seconds}


def latency(size: int, work: Callable[[int], object], wanted: Callable[[int], object]) -> Figures:
    """How long one unit takes after the other, in ms: the median, and what 99 of 100 stay below."""
    taken = []
    for number in range(size):
        start = time.perf_counter()
        found = work(number)
        taken.append((time.perf_counter() - start) * 1_000)
        expect(found, wanted(number))
    return {"p50": statistics.median(taken), "p99": sorted(taken)[int(0.99 * (size - 1))]}


def publishing(size: int, publish: Callable[[str], object], take: Callable[[str], int]) -> Figures:
    """How many calls are published in a second, and how many are executed until all are.

    The calls put the numbers below `size` under a key of their own; `take` waits for one of them.
    """
    key = f"noted:{uuid.uuid4().hex}"
    start = time.perf_counter()
    publish(key)
    published = time.perf_counter() - start
    missing = set(range(size))
    while missing:
        missing.discard(take(key))
    return {"per second": size / published, "executed": size / (time.perf_counter() - start)}


def expect(found: object, wanted: object) -> None:
    """Raise `ValueError` unless a result is right."""
    if found != wanted:
        raise ValueError(f"wrong results: {str(found)[:200]} instead of {str(wanted)[:200]}")
