"""Metrics, traces (docs/observe.md).

`process_figures`  counters and histograms of one worker process
`figures`          gauges of the log and the queues, read when asked for
`spans`            spans of runs, calls and loops, as plain values
`sending`          exporting spans with OpenTelemetry
"""
