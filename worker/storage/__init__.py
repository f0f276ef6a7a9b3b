"""The log in Redis, its scripts (`lua/`) and what lies beside it.

`connections`   connections, and Redis errors as errors of ours
`grouping`     commands of one turn of the loop in one pipeline
`keys`          the names of the keys
`clock`         the server's time
`scripts`       the Lua scripts, and how they are called
`condition`     how a call stands that has begun and has not ended
`files`       files beside a run's log, and the messages that show them
`formats`       which runs are read
`definition`    how a checked plan is written down
`trust`         what a definition holds of what tools say of who may decide
`gatherings`    what gather calls wait for in the lane of an instance
`run_writer`    writing a run down
`fields`        the names of the fields of an entry of the log
`entries`       an entry of the log, read as an event
`lane_state`    what the log says of a lane: the one fold of it
`withdrawn`     which events and messages count no more
`run_state`     what the log says of a run, its lanes and its loop
`commits`       what a commit asks, and what comes of it
`log`           reading lanes and committing, as lane runners do
`sessions`      which process has a run's session with an MCP server
`codes`         which worker carried out calls, with which version of their code
`spent`         what the log says of the time that a call took
`loop_entries`  what the log holds of a run's loop, and one step of it
`child_links`   how a run and the call that it answers know each other
`budgets`       what all that stands below a loop may take together
`unanswered`    requests to models that are made again
`living`        which processes live, and what they hold
`waiting`       what else calls wait for that is no call, and queues that nobody serves
`held_calls`    what waits for a person, and what was decided, as bytes
`history`       the log of one run, as clients read it
`lane`          a lane as its runner sees it
`due`          the index of runs that have something due
`run_list`      the runs under way, and those that have ended
`owned_runs`    the runs of an owner
`retention`    giving a run's keys their expiry, deleting them
`slots`         how many calls of a name are at work at a time
`packed_calls`  calls and tools in definitions and records
`queue_notes`   what the sweep notes of queues, for those who may only count what lies there
`set_aside`     what stands in a key and was written by nothing of ours
`secret`        what the tokens of remote attempts are made from
`dead_letters`  calls that failed for good
`audit`         who did what to a run, and from where
"""
