"""Submitting runs, following them, steering them.

`client`        submit, find runs again
`async_client`  the same for asyncio programs
`submitting`    what a client is handed to be run
`files`         files that a model is shown
`deleting`      deleting runs that are over, and what that frees
`archive`       a run as one file
`evaluation`    cases run for several models, and held against what is expected
`dispatcher`    having a run written down, and publishing it
`results`       a result, folded from the log
`call_results`  how its single calls stand
`tables`        runs as rows, for analysis
`absence`       why a value is not there
`progress`      a run's events
`control`       pause, resume, cancel
`amendment`     replacing calls that have not begun
`retrying`      failed calls again, or given by hand
`people`        what waits for a person, and deciding on it
`deployments`   the runs under way, held against code that is to come
`fork`          a new run from a moment of another
`programs`      how a process of ours starts another
`local`         a server and a worker in this process, for tests and notebooks
`run`           what is read of it (readable_run), and orders to it
"""
