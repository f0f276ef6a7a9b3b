"""The pure core: what a submission means, without Redis, Celery, clock or files.

    R1, R2       `references`  references and expressions, with their one parser; a reference's `paths`
                 `messages`    what a context is made of, and files
                 `templates`   texts with expressions
                 `errors`      problems with pointers, and near misses; `limits` what may be how large
    R4.1, R4.6   `schemas`     JSON Schema, applied to values that may not be known whole
    R3, R8       `state`       values: the fold of a log, instances, scopes
    R4, R5, R9   `calls`       a call, its tool, its output, its delegate
    R6, R7.1, R10 `plan`       a checked submission, and who waits for whom
    R16          `trust`       what others wrote, and what it may decide
    R16.8        `run_rules`   what starts in a run without a question
    R5-R7.2      `engine`      the state machine of one lane's calls
    R12.6b       `near_misses` texts that were meant as references and are none
    R12          `requests`    what a model is asked, and what its answer means
    R6.7, R11    `analysis`    what can be said of a valid submission without running it
                 `hints`       remedies for errors

A module imports only those above it in this list. `facade` is above all, and loads analysis and hints when they are
asked for.
"""

from typing import TYPE_CHECKING, Any

from .calls.outputs import Message, Output
from .errors import Conflict, ExpressionError, OutputError, Problem, ProtocolError, Rejected, Unresolved
from .facade import Plan, check, check_amendment, check_in, check_submission
from .limits import Limits
from .references import Expression, Reference, parse
from .state.context import Context

if TYPE_CHECKING:
    from .analysis.findings import Finding

__all__ = [
    "Conflict",
    "Context",
    "Expression",
    "ExpressionError",
    "Finding",
    "Limits",
    "Message",
    "Output",
    "OutputError",
    "Plan",
    "Problem",
    "ProtocolError",
    "Reference",
    "Rejected",
    "Unresolved",
    "check",
    "check_amendment",
    "check_in",
    "check_submission",
    "parse",
]


def __getattr__(name: str) -> Any:
    """`Finding`, which belongs to the analysis, and is loaded with it."""
    if name != "Finding":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .analysis.findings import Finding

    return Finding
