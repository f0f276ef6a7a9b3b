"""Who waits for whom (SPEC R6, R8.3a, R10).

`graph`        the waits of the calls of one lane
`readers`      who reads a place; `writers` who writes there
`places`       where readers may find anything, and which place a misspelt one was meant to be
`holdings`     which places the context holds
`barriers`     many writers of a place as one node
`scope_waits`  what calls wait for by their scopes, without cycles
`promises`     input that a schema announces
`gathering`    calls that read in every instance
`downstream`   what stands behind some calls, over all lanes
`waits`        what calls wait for, by what the context holds
`lanes`        the calls of a submission, by instance
"""
