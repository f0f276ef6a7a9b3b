"""Signs of life for what a process has at work.

`presence`      of a process that sees the log: said there
`heartbeats`    of one that sees only the broker: said in reports
`report_queue`  where reports are said, and read
`sidecar`       a process beside each worker process, for when it cannot report: `sidecar_process` is its program,
                `sidecar_reports` what it reports
"""
