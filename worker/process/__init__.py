"""What every process of ours does beside its work.

`duties`       what a process does again and again in a thread of its own
`batching`     sending together what is handed in at the same time
`silence`      connections that were dropped without a reset
`watchdog`     whether an event loop turns, and what blocks it
`problems`     what is wrong with this process
`health_file`  the file in which it says so
`outages`      one line when something stops working, one when it works again
`refusals`     how much it has refused
`figures`      what is counted and timed of its calls
`names`        a bounded number of names for labels of figures
`log_context`  which run, instance and call a log line is about
`log_lines`    how a line is written: for people, or as JSON
`log_secrets`  what no line may show
`log_setup`    setting these up in a worker
`open_telemetry`  the span that code is under, where OpenTelemetry is in use
`limits`       the settings' limits, as the core takes them
"""
