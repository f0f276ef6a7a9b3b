"""The state machine of the calls of one lane, without I/O (SPEC R4.9, R5, R6.4-R6.6, R7.2).

`events`     what an entry of the log says, as types
`execution`  which calls can begin, and what has to be said next
`outcomes`   what a result means: values, failures, skips
`call_statuses`   the status of each call, by the log
`costs`      what asking models has cost
`loop`       the ticks of a request: stages and their transitions
"""
