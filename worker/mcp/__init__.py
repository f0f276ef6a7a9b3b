"""This backend as an MCP server: `acts mcp` (extra mcp).

`tools`      callers, the runs that they see, tools in general
`reading`    the tools: those that read, those that act, delegates
`documents`  large documents, checked in processes of their own
`server`     the server, over standard input and output or over HTTP
"""
