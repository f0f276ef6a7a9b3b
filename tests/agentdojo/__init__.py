"""AgentDojo: what somebody else wrote, tried on the tasks of a public benchmark (SPEC R16).

`labels` says of each function what an operator would; it was written, and landed, before anything was measured.
"""
