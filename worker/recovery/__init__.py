"""Finding what was lost, and publishing it again.

`sweep`   judging leases, publishing again
`probes`  what was taken from a queue
`outbox`  fire-and-forget calls, until they are done
"""
