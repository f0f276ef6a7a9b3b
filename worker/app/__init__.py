"""The Celery application and the runtime of a worker process.

`application`  making it from settings
`runtime`      event loop, connections, scheduler
`tasks`        what each queue's workers do
"""
