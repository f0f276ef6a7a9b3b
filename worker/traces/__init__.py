"""Runs as traces (OpenTelemetry), written from their logs: a run that nobody traces costs nothing.

`spans`        a span, as plain values, and the names of its attributes (the GenAI semantic conventions)
`call_spans`   the spans of calls, and of their elements
`loop_spans`   the spans of a loop: its ticks and what was asked
`run_spans`    a run's log, entry by entry, as spans
`sending`      spans to OpenTelemetry's exporter, by its own settings
`exporting`    which runs have ended and were not exported yet
"""
