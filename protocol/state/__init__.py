"""What is true: the values that a log of messages makes (SPEC R3, R8).

`operations`  what one message does to the values
`kinds`       the value of one kind; `overlay` one on top of another; `conflicts` operations that do not fit
`fold`        the values of one reader
`labels`      which sources the values came from
`shapes`      what is wrong with a message
`gathered`    what a call reads in every instance at once
`scopes`      what of the values a call may see
`allowance`   how much of them one call may be given
`context`     a list of messages, and what its readers see
"""
