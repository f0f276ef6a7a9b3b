"""Submitting runs, following them, steering them.

`client`        the client
`async_client`  the client for asyncio
`submitting`    documents, drafts and types, made into a submission
`dispatcher`    writing a run, and publishing it
`files`         files that a model is shown
`run`           one run: what can be read and ordered
`results`       the result of a run
`call_results`  the result of each call
`progress`      the events of a run
`tables`        results as rows
`explanations`  where a value came from, or why it is missing
`control`       pause, resume, cancel, send
`undoing`       undoing what finished calls have done
`people`        calls held for a person, and decisions
`retrying`      failed calls, run again
`amendment`     calls that have not begun, replaced
`fork`          a new run from a moment of another
`archive`       a run as one file
`deleting`      deleting runs, and one person's data
`evaluation`    cases, run with several models and compared
`deployments`   runs under way: their list, and a check against new code
"""
