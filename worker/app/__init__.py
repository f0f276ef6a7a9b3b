"""The Celery application and the runtime of a worker process.

`application`  making it from settings
`runtime`      event loop, connections, scheduler
`garbage`      how a process searches for garbage
`operator_step` what a worker warns of when it starts
`scheduler`    one runner for each lane of a process
`health_report` what is wrong with a process, shown and written down
`returns`      tasks that this version does not read go back to their queue
`celery_options` which options of Celery's own command a worker takes
`tasks`        what each queue's workers do
`pool`         running coroutines on the loop, the rest on threads
`tracing`      running a coroutine with Celery's signals and errors
"""
