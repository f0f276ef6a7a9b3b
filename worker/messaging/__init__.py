"""What travels between processes: payloads, their transport, heartbeats.

`packing`       msgpack, as everything of ours travels; its bounds where it comes from outside
`limits`        the settings' limits, as the core takes them
`attempts`      one execution of a call, and what its code can ask about it
`tokens`        what shows that a result comes from the worker that was given the call
`task_messages` tasks to be published: name, queue and argument
`messages`      remote calls, their results, reports: as what they travel
`transport`     queues and channels in Redis, and what lies there and is no message
`queue_order`   from which queue a worker takes next
`broker`        the broker's failures, reported as errors of ours
`publisher`     publishing in batches
`envelopes`     several tasks in one message
`batching`      sending together what is handed in at the same time
`publish_buffer` publishing for lane runners, also while the broker is away
`cancellation`  dropping what is at work for a cancelled run
`consumer`      what a worker takes from the broker
`admission`     which messages it takes from which queue
`remote_control` which of Celery's commands it takes
`refusals`      how much it has refused
`prefetch`      what it has taken and not acknowledged, and how much that may be
`fair_semaphore` so many at a time, shared fairly among keys
`lane_admission` places of a worker, shared among runs
`task_log`      one line for each task
`decoding`      bounds for what kombu decodes
`task_events`   Celery's task events: none is lost, many go together
`reports`       what a process that sees only the broker says of its calls
`report_queue`  where it says so
`heartbeats`    saying what it has at work and what it has taken, while it lives
`watchdog`      whether an event loop turns, and what blocks it
`log_context`   which run, instance and call a log line is about
`health`        what is wrong with this process
`health_file`   the file in which it says so
`duties`        what a process does again and again in a thread of its own
`outages`       one line when something stops working, one when it works again
"""
