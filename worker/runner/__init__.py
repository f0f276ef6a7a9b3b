"""Running the calls of a lane.

`application`  the Celery application
`runtime`      event loop, connections and scheduler of a worker process
`pool`         Celery's pool: coroutines on the loop, the rest in threads
`scheduler`    one runner for each lane of a process
`lane_runner`  decide, commit, apply, until nothing is ready
`deciding`     which calls are ready, and what results mean
`step`         what one commit holds
`starting`     beginning a claimed call
`once`         calls that run at most once: their beginnings, and who says how one has ended
`calls`        one attempt of an activity or a delegate, within its timeout
`remote`       calls that other workers run
`rooms`        what other rooms do for the core
`checking`     what is wrong with a submission, by what is registered here
`validating`   the process in which heavy checks are made
"""
