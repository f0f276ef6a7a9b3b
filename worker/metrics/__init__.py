"""Figures for Prometheus (docs/observe.md, "Figures"): what one process does, and what is in the log and the queues.

`process_figures`  what a worker's process has done since it began: counters and histograms
`log_figures`      what is in the log now, read when it is asked for
`queue_figures`    what lies in the queues now, in tasks
`collection`       both of these, as `acts metrics` shows them
`serving`          the page on a port
`step`             it, in a worker
"""
