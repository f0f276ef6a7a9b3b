"""Finding what was lost, and publishing it again.

`sweep`   judging leases, publishing again
`probes`  what was taken from a queue
`hold_hook`  telling a web hook what is held for a person
`outbox`  fire-and-forget calls, until they are done
"""
