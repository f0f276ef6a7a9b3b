"""This backend as an MCP server (extra `mcp`): `acts mcp`.

`principals`  who asks, and what that admits
`runs`        the runs that somebody may see, read and steered
`tools`       what all tools have in common
`reading`     the tools that only look
`doing`       the tools that submit, decide and cancel
`delegates`   delegates that are tools
`answers`     what a tool gives, and what went wrong, as MCP has it
`documents`   large documents, in processes of their own
`server`      the server of the protocol, the same for both transports
`stdio`       one client, over standard input and output
`over_http`   many clients, each with a token

All that a tool does is a method of the client. What a run holds is data in an answer, cut where it is large; nothing
of it is an instruction to whoever reads it.
"""
