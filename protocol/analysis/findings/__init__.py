"""Findings: all that can be said against a valid submission before it runs, and is no error (SPEC R6.7).

`proofs` asks each of these in turn, and gives `finding`s:

    as written        `slips` what was hardly meant so, and `texts` with a reference in them that nobody reads - by the
                      `presence` of what they name; `habits` of other systems; `scopes` that show nothing; `payloads`
                      that nobody can read; calls that stay `unrun`; `declarations` with a schema where nobody looks;
                      `signatures` what the code behind a tool does not take, with all `conversions` on the way into it
    values (R4.1)     `promises` results that their readers can never take; `misfits` values that their place cannot -
                      by the `demands` of tools and activities, told by `fitting` one schema to another: `cases`,
                      `types` and `ranges` are what a schema admits, `effects` what a method makes of a result
    results (R4.6)    `answers` calls that none can be right for
    trials (R6.5)     `foresight` calls of which all that decides about them is known, tried out; `trials` of the
                      others, on results that are made up, with `leniency` wherever these reach; `doubts` of what
                      a simulation shows
    places (R3.4)     `obstacles` paths that nothing can be written to; `elements` beyond the end of a list
    order (R6.4)      `races` of `replacements`; `clashes` of methods that do not go together;
                      `timing` reads and scopes that depend on it (R8.3a); `positions` in lists that are filled
                      in none - all by the `order` of the calls, and by `schedules` in which they meet:
                      branches and `switches` keep many apart, as `rehearsals` show
    branches (R6.5)   `branches` nobody takes, and readers that can never run; `joins` of what never comes together;
                      `fallbacks` that are never read

What hangs on the data is found lane by lane: `sight` is what a lane sees, `instances` says in which of them it holds;
what hangs on tools and schemas alone is found once for all of them, and kept in the `memory`. None of it takes more
than so much `effort`.
"""

from .finding import Finding
from .proofs import findings_of, unread_results

__all__ = ["Finding", "findings_of", "unread_results"]
