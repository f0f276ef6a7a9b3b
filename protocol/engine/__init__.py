"""The state machine of the calls of one lane, without I/O (SPEC R4.9, R5, R6.4-R6.6, R7.2).

`events`     what an entry of the log says
`outcomes`   what a result means
`standing`   how calls stand, by what the log says
`execution`  what can be done next
`costs`      what asking models has cost
`loop`       the ticks of a request: stages, and their transitions
"""
