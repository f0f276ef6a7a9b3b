"""Finding what was lost, and publishing it again.

`thresholds`   how long what may be silent
`broken_runs`  runs whose keys cannot be read
`probes`       what was taken from a queue
`outbox`       fire-and-forget calls, until they are done
`reported`     taking note of what workers report
`hold_hook`    calling a web hook for what is held for a person
`overdue`      looking after the runs in which something is due
`sweep`        one worker at a time does all of this
"""
