"""Running the calls of a lane, in line and remote.

`application`  making it from settings
`runtime`      event loop, connections, scheduler
`scheduler`    one runner for each lane of a process
`pool`         running coroutines on the loop, the rest on threads
`lane_runner`  decide, commit, apply, until nothing is ready
`step`         what one commit is to hold
`deciding`     what results mean and what is ready
`starting`     how a claimed call is begun
`remote`       calls that leave the lane's task
`checking`     what is wrong with a submission, by what is registered here
`calls`        calling an activity or a delegate once, with its timeout
"""

from __future__ import annotations
