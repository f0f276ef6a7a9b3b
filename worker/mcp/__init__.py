"""This backend as an MCP server: `acts mcp` (extra mcp).

`tools`      what all tools have in common
`reading`    tools that read, and tools that act
`documents`  large documents, checked in processes of their own
`server`     the server, for both transports
`over_http`  many clients, each with a token
"""
