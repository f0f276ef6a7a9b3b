"""The log in Redis, its scripts (`lua/`) and all other keys.

`connections`   clients of Redis
`servers`       a log on several servers
`keys`          names of keys and fields, and the state of a call
`scripts`       Lua scripts
`definition`    a checked plan as bytes
`run_writer`    writing a new run
`entries`       an entry of the log as an event; one step of a loop
`loop_view`     a run as its loop sees it
`log`           reading lanes and committing
`commits`       what a commit asks and answers
`lane`          a lane as its runner sees it
`state`         a run as its readers see it, folded from the log
`held_calls`    calls that wait for a person
`slots`         calls of a name at work at the same time, and budgets
`sweeps`        what recovery reads and writes
`living`        processes and MCP sessions that live
`waiting`       what else calls wait for; dead letters
`run_store`     one run: its state, its log, what people do to it
`run_list`      the lists of runs, their parents and owners, files of messages
"""
