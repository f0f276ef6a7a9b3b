"""Finding lost work, and publishing it again.

`heartbeats`       which processes live, and which calls they are at
`sidecar`          a process beside each worker process that reports when the worker cannot
`sidecar_process`  the program of that process
`sweep`            one worker at a time looks for what is lost
`overdue`          runs in which something is due: the outbox, broken runs, web hooks
"""
