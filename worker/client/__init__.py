"""Submitting runs, following them, steering them.

`client`         submit, find runs again
`async_client`   the same for asyncio programs
`awaiting`       its methods, made from those of the client
`submitting`     what a client is handed to be run
`files`          files that a model is shown
`authoring`      plans written in code
`overview`       which runs there are, and which one is meant
`deleting`       deleting runs that are over, and what that frees
`erasing`       one person's data over all runs
`erasure`        deleting instances of a run
`archive`        a run as one file
`evaluation`     cases run for several models, and held against what is expected
`labels`         the id, the name and the tags of a run
`ownership`      whose a run is, where a token says so
`admission`      whether who has shown a token may begin another run
`dispatcher`     having a run written down, and publishing it
`forgetting`     what has ended with its submission, since it is sent and forgotten
`runs`           a run from outside: orders to it
`readable_run`   what is read of it
`run_status`     its status, and its calls counted by theirs
`output_types`   the class that an output is a value of
`results`        a result, folded from the log
`call_results`   how its single calls stand
`tables`         runs as rows, for analysis
`instance_status`  how each instance stands
`collecting`     searching for garbage while much is made
`timings`        when calls began and ended, and what they waited for
`log_entries`    what is shown of the log's entries
`changes`        what a person changed of a held call
`drawing`        the picture of a run
`display`        what a notebook shows of a result
`absence`        why a value is not there
`progress`       a run's events
`promised`       which calls wait for what a schema has promised
`streams`        what comes in a run, and waiting for it
`control`        pause, resume, cancel
`amendment`      replacing calls that have not begun
`retrying`       failed calls again, or given by hand
`undoing`        which calls that concerns, and what is stale
`amendment_steps`  how a run is changed in many lanes
`publishing`     publishing lanes that stand in the log
`sending`        adding data messages to a run under way
`people`         what waits for a person, and deciding on it
`descendants`    the same in its child runs
`deployments`    the runs under way, held against code that is to come
`plans`          the plan of a run in mode lazy
`replacing`      other calls in place of a held one
`loops`          more ticks for a loop, something said in it, what it asked
`fork`           a new run from a moment of another
`programs`       how a process of ours starts another
`local`          a server and a worker in this process, for tests and notebooks
`local_backend`  a server and a worker for a while
`background`     what was sent and not awaited: how it stands, and waiting for it
"""
