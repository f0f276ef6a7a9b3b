"""What travels between processes, as bytes; read within bounds, since whoever writes to a queue is not trusted.

`packing`        msgpack, as everything of ours travels; its bounds where it comes from outside
`attempts`       one execution of a call, and what its code can ask about it
`traces`         where a run and its calls stand in a trace
`tokens`         what shows that a result comes from the worker that was given the call
`task_messages`  tasks to be published: name, queue and argument
`messages`       remote calls, and their results
`reports`        what a process that sees only the broker says of its calls
`giving_back`    calls that the code here does not admit, and for how long they rest
"""
