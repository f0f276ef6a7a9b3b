"""The state machine of the calls of one lane, without I/O (SPEC R4.9, R5, R6.4-R6.6, R7.2).

`statuses`         the states of a call, and their transitions
`readiness`        counting down what each call waits for
`holds`            calls that wait for a person
`guests`           calls that wait in the lanes of all instances
`elements`         calls that are carried out for each element of a list
`events`           what an entry of the log says
`undone`           which of that counts no more
`decisions`        what is to be done, what comes of it, and what that means for the log
`outcomes`         what a result means
`standing`         how calls stand, by what the log says
`execution`        what can be done next
`costs`            what asking models has cost
`loop_events`      what can happen to a loop
`loop`             the ticks of a request: stages, and their transitions
`loop_limits`      what a loop may spend
`solution_output`  the output of a solution, with its references read; whether a loop accepts it
"""
