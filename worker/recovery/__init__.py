"""Finding what was lost, and publishing it again.

`sweep`   judging leases, publishing again
`outbox`  fire-and-forget calls, until they are done
"""
