"""The log in Redis, its scripts (`lua/`) and what lies beside it.

`connections`   connections, and Redis errors as errors of ours
`keys`          the names of the keys
`scripts`       the Lua scripts, and how they are called
`definition`    how a checked plan is written down
`run_writer`    writing a run down
`entries`       an entry of the log, read as an event
`commits`       what a commit asks, and what comes of it
`log`           reading lanes and committing, as lane runners do
`loop_entries`  what the log holds of a run's loop, and one step of it
`living`        which processes live, and what they hold
`waiting`       what else calls wait for that is no call, and queues that nobody serves
`held_calls`    what waits for a person, and what was decided, as bytes
`lane`          a lane as its runner sees it
`run_list`      the runs under way, and those that have ended
`slots`         how many calls of a name are at work at a time
`state`         the one fold that results, forks, amendments, retries, explanations and the loop read
"""
