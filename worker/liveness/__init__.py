"""Signs of life for what a process has at work.

`leases`        of a process that sees the log: renewed there
`heartbeats`    of one that sees only the broker: said in reports
`report_queue`  where reports are said, and read
"""
