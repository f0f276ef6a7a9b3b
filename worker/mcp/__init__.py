"""This backend as an MCP server (extra `mcp`): `acts mcp`.

`tools`      what all tools have in common
`reading`    the tools that only look
`documents`  large documents, in processes of their own
`server`     the server of the protocol, the same for both transports
`over_http`  many clients, each with a token
"""
