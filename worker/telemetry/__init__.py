"""Metrics and traces (docs/observe.md).

`process_metrics`  counters and histograms of one worker process
`worker_step`      keeps and shows them while a worker runs
`metrics`          gauges of the log and the queues, read when asked for
`spans`            spans of runs, calls and loops, as plain values
`sending`          exporting spans with OpenTelemetry
"""
