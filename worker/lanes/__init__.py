"""Running the calls of a lane, in line and remote.

`lane_runner`   decide, commit, apply, until nothing is ready
`step`          what one commit is to hold
`deciding`      what results mean and what is ready
`mailbox`       what arrives for a runner
`services`      what all runners of a process share
`views`         the shared parts of the runs
`recent`        what was used last and is kept for a while
`fitting`       whether the code here admits a call
`starting`      how a claimed call is begun
`inline_calls`  calls that the runner carries out itself
`invocation`    calling code once, with its timeout
`threads`       plain functions, so many at a time
`django_connections` closing those of Django that are unusable
`values`        what code returns, as JSON values
`remote`        calls that leave the lane's task
`children`      the runs of delegates that have tools
`call_budget`   what calls that ask a model take from a loop's budget
`call_slots`    limits on how many calls of a name are at work
`checking`      what is wrong with a submission, by what is registered here
`validator`     a process beside this one for heavy checks
`validating`    what that process does
"""
