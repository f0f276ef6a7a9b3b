"""`acts doctor`: what is wrong, and what to do.

`command`  the command
`layer`    what is said of one thing
`layers`   everything that is looked at, in order
`mcp`      whether MCP servers can be opened, and whether their tools are those that are admitted
`models`   whether models can be loaded, and reached
`operator` what the operator says of tools
`servers`  broker, log, workers, queues
`code`     workers with different code
"""
