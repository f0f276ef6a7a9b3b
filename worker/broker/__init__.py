"""Celery and kombu, adapted, and what travels between processes.

`transport`       queues and channels on Redis, RabbitMQ and others
`consumer`        taking and publishing tasks
`queue_order`     from which queue, and of which priority, the next task is taken
`remote_control`  the commands of Celery that a worker obeys
`attempts`        one attempt of a call, and what its code can ask about it
`messages`        remote calls, results and reports, as bounded msgpack
"""
