"""Running the calls of a lane, in line and remote.

`scheduler`     one runner for each lane of a process
`lane_runner`   decide, commit, apply, until nothing is ready
`loop_runner`   ask the model, run its calls, look at its output, ask again
`loop_log`      what a loop runner writes
`loop_answers`  the steps that come of a model's answers
`loop_requests` what the next tick asks
`loop_view`     a run as its loop sees it
`ticks`         what an answer comes to, and how it is written down
`repeats`       ticks that come to the same as the one before
`children`      the runs of delegates that have tools
`checking`      what is wrong with a submission, by what is registered here
`starting`      how a claimed call is begun
`inline_calls`  calls that the runner carries out itself
`mailbox`       what arrives for a runner
`services`      what all runners of a process share
`admission`     limits on how many calls are at work
`budget`        what a loop and its calls that ask a model take
`views`         the shared parts of the runs
`recent`        what was used last and is kept for a while
`invocation`    calling code once, with its timeout
`threads`       plain functions, so many at a time
`fair_scheduling` the event loop, shared among runs
`validator`     a process beside this one for heavy checks
`validating`    what that process does
`values`        what code returns, as JSON values
`remote`        calls that leave the lane's task
"""
