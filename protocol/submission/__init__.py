"""What is handed in, and everything that is known of it before anything runs (SPEC R7.1, R10).

`decoding`    from bytes: JSON, with comments or without, or msgpack
`shapes`      what else stands for a submission: a call alone, a list of messages and calls
`submission`  reading it
`definitions` the request definitions it holds
`config`      its settings
`output`      the output of its solution
`asides`      what a request asks for beside calls and an output: advice, and a version
`checking`    finding all structural errors: `reading_calls`, then all calls together
`upfront`     tools narrowed by what their delegates declare
`layout`      what a check has found out, and the order that follows from it
`tool_reach`  what is said of all that a model can call, also through delegates
`support`     what of it a backend of this version cannot do yet
`amendments`  other calls for a run under way
`additions`   data messages for one
"""
