"""AgentDojo: what somebody else wrote, tried on the tasks of a public benchmark (SPEC R16).

`labels` says of each function what an operator would; it was written before anything was measured. `suites` is
AgentDojo itself, `plans` makes a plan of a task with `origins` and `facts`, `running` runs it, `attacks` attacks it,
`figures` counts; `blind` has two suites more. `loops` gives the tasks to a model, on a worker (`speaker`).
docs/internals/trust.md has the figures.
"""
