"""What is true: the values that a log of messages makes (SPEC R3, R8).

`operations`  what one message does to the values
`kinds`       the value of one kind; `overlay` one on top of another; `conflicts` operations that do not fit
`fold`        the values of one reader
`labels`      which sources the values came from
`scopes`      what of the values a call may see
`context`     a list of messages, and what its readers see
"""
