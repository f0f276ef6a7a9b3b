"""What must come out, worked out in the plainest way: everything is looked up anew every time, nothing is kept.

It shares no code with the core: a resolver, a graph and an order of its own. Submissions are taken to be valid. It runs
a lane's calls one by one; `is_deterministic` says whether any other order has to give the same.
"""

from .folding import NOTHING, Misfit, Step, folded, found, step_of
from .judging import faults, is_deterministic
from .places import INDEX, Place, is_expression, may_fail, overlap, place, places, places_seen
from .running import ALL_FAILED, REFUSED, Function, To, Verdict, World, Wrong, evaluate, seen

__all__ = [
    "ALL_FAILED",
    "INDEX",
    "NOTHING",
    "REFUSED",
    "Function",
    "Misfit",
    "Place",
    "Step",
    "To",
    "Verdict",
    "World",
    "Wrong",
    "evaluate",
    "faults",
    "folded",
    "found",
    "is_deterministic",
    "is_expression",
    "may_fail",
    "overlap",
    "place",
    "places",
    "places_seen",
    "seen",
    "step_of",
]
