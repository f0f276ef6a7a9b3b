"""Values, folded from a log of messages (SPEC R3, R8).

`context`     a list of messages, and what its readers see
`fold`        the values of one reader
`operations`  what one message does to the values
`kinds`       the values of one kind, and conflicting operations
`labels`      which sources a value came from
`scopes`      which values a call may see
"""
