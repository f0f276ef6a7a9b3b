"""Celery and kombu, adapted: publishing, taking, refusing.

`transport`       queues and channels in Redis, and what lies there and is no message
`consumer`        what a worker takes from the broker
`remote_control`  which of Celery's commands it takes
`attempts`        one execution of a call, and what its code can ask about it
`messages`        remote calls, and their results
"""

from __future__ import annotations
