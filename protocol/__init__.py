"""The pure core: what a submission means, without Redis, Celery, clock or files.

Each module is one part of the rules (`SPEC Rx`); a rule's module is the first one named.

    R1  messages      `messages` what a message carries; `shapes` what is wrong with one
    R2  references    `references` the grammar; `paths` walking values
    R3  resolution    `resolution` the fold of a log; `operations` its steps; `kinds` the value of one kind,
                      `overlay` on top of another; `conflicts` steps that do not fit; `context` messages and what
                      their readers see
    R4  calls         `calls` one use of a tool; `tools` what may be called, and by whom; `outputs` where results go;
                      `schemas` JSON Schema
    R5  no output     `calls` (`Call.is_fire_and_forget`, `Call.is_thought`)
    R6  the graph     `graph` who waits for whom; `waits` makes it, by `writers`, `readers` and the `holdings` of the
                      context; `lanes` by where calls run; `layout` of all of them, and `plan` what follows;
                      `execution` the state machine; `readiness` its countdown; `statuses` its transitions
    R6.7 beforehand   `drawing`; `cost`; `simulation` on `inventions`: `samples`, `moulds` and their `variety`;
                      `visibility` who can see what; `findings` all that speaks against a valid submission
    R7  errors        `errors` the tree; `checking` finds all structural ones; `submission` what is handed in; `limits`;
                      `explanations`, `nearness`, `daggers`, `spelling`, `views` and `wrappings` hints for people
    R8  scopes        `scopes`
    R9  delegates     `delegates`
    R10 instances     `lanes`; `resolution` (R3.6)
    R11 runs          `origins` which messages a value came from; `amendments` new calls for a run under way
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
