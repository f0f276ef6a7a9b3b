"""The code that a worker knows: activities, delegates, MCP tools.

`activities`           registering functions
`contracts`            what workers announce of it, for clients without it
`loading`              importing the modules that register
`signatures`           the schema of a function's parameters
`request_definitions`  delegates in JSON files, and the operator's file of trust
`mcp_connections`      one session with a server, opened when it is first needed
`mcp_sessions`         the sessions of runs: one for each run and server
`mcp_tools`            admitted tools, under SERVER.TOOL
`mcp_transports`       servers that are processes, and servers over HTTP
`models`               which models there are, and what one is asked and answers
"""
