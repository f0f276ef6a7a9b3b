"""Finding what was lost, and publishing it again.

`heartbeats`       of one that sees only the broker: said in reports
`sidecar`          a process beside each worker process, for when it cannot report: `sidecar_process` is its program,
                   `sidecar_reports` what it reports
`overdue`          looking after the runs in which something is due
`sweep`            one worker at a time does all of this
`sidecar_process`  the program of a sidecar (see sidecar): it reports for a worker process that lives and has fallen
                   silent
`sidecar_reports`  what a sidecar reports for its worker process, in the words of presence and heartbeats
"""

from __future__ import annotations
