"""`acts doctor`: what is wrong, and what to do.

`command`  the command
`layer`    what is said of one thing
`layers`   everything that is looked at, in order
`servers`  broker, log, workers, queues
"""
