"""A call: its tool, who runs it, where its result goes, what it sees (SPEC R4, R5, R9, R14.1).

`call`             one call, as a submission or a model states it
`meta_properties`  the one table of the properties whose names begin with an underscore
`tools`            what a tool's schemas admit and pin
`pins`             expressions that a tool prescribes for parameters
`declarations`     tools and delegates that a document declares, and what they are given
`built_in`         tools that are always known: what they take, and what the engine does for them
`outputs`          output paths, and the message that a result becomes
`trust`            what a tool and the operator say about sources and decisions
"""
