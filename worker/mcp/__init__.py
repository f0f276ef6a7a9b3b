"""This backend as an MCP server: `acts mcp` (extra mcp).

`tools`      callers, the runs that they see, tools in general
`reading`    the tools: those that read, those that act
`code_tools` activities, delegates and workflows as tools
`tasks`      runs as tasks, which ask the user of a client
`documents`  large documents, checked in processes of their own
`server`     the server, over standard input and output or over HTTP
"""
