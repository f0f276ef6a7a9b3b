"""A call: its tool, who runs it, where its result goes, what it sees (SPEC R4, R5, R9, R14.1).

`call`          one call, as a submission or a model states it
`tools`         what a tool's schemas admit and pin
`declarations`  tools that a document declares, and tools that extend others
`outputs`       output paths, and the message that a result becomes
`delegates`     the context of an isolated sub-request
`trust`         what a tool and the operator say about sources and decisions
"""
