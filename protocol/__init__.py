"""The pure core: what a submission means, without Redis, Celery, clock or files.

Each module is one part of the rules in SPEC.md: `messages` (R1), `references` (R2), `operations` and `resolution`
(R3), `tools`, `calls` and `outputs` (R4, R5), `graph`, `plan`, `drawing` and `execution` (R6), `errors`, `submission`,
`limits` and `checking` (R7), `scopes` (R8), `delegates` (R9), `origins` (R11).
"""

from .checking import check, check_submission
from .context import Context
from .errors import Conflict, ExpressionError, OutputError, Problem, ProtocolError, Rejected, Unresolved
from .limits import Limits
from .outputs import Output
from .plan import Finding, Plan
from .references import Expression, Reference, parse

__all__ = [
    "Conflict",
    "Context",
    "Expression",
    "ExpressionError",
    "Finding",
    "Limits",
    "Output",
    "OutputError",
    "Plan",
    "Problem",
    "ProtocolError",
    "Reference",
    "Rejected",
    "Unresolved",
    "check",
    "check_submission",
    "parse",
]
