"""Figures for Prometheus (docs/observe.md, "Figures"): what one process does, and what is in the log and the queues.

`process_figures`  what a worker's process has done since it began: counters and histograms
`spans`            a span, as plain values, and the names of its attributes (the GenAI semantic conventions)
`sending`          spans to OpenTelemetry's exporter, by its own settings
`figures`          the figures of log and queues as acts metrics shows them: gauges, read when they are asked for
"""

from __future__ import annotations
