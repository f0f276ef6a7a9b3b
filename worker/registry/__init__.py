"""What user code is known: activities, delegates, functions that are models.

`listing`              what a server lists, tool by tool
`activities`           registering code
`signatures`           the schema of what a function takes
`loading`              loading the modules that register
`request_definitions`  delegates that are JSON files
`mcp_connections`      one session with a server, opened when it is first needed
`mcp_sessions`         the sessions that runs have with MCP servers: each run has its own with a server, and one at a
                       time
`mcp_tools`            those of ACTS_MCP that are admitted, under SERVER.TOOL
`mcp_transports`       an MCP server that is a process of ours, spoken to by its standard input and output: a line is
                       a message
"""

from __future__ import annotations
