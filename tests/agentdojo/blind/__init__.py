"""Two suites for AgentDojo of other trades, `shop` and `forge`, with 20 tasks and 10 attacks each.

They were made by somebody who had not seen by which sentences functions are labelled. TOOLS.md, of the same hand, says
who can write what is in the results of the functions; `labels` was written from it.
"""
