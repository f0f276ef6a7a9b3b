"""Celery and kombu, adapted: publishing, taking, refusing.

`failures`        the broker's failures, reported as errors of ours
`transport`       queues and channels in Redis, and what lies there and is no message
`queue_order`     from which queue a worker takes next
`decoding`        bounds for what kombu decodes
`publisher`       publishing in batches
`envelopes`       several tasks in one message
`publish_buffer`  publishing for lane runners, also while the broker is away
`consumer`        what a worker takes from the broker
`admission`       which messages it takes from which queue
`prefetch`        what it has taken and not acknowledged, and how much that may be
`cancellation`    dropping what is at work for a cancelled run
`remote_control`  which of Celery's commands it takes
`task_events`     Celery's task events: none is lost, many go together
`task_log`        one line for each task
"""
