"""Tools of MCP servers, carried out by workers as activities (extra `mcp`).

`declarations`  what a server says of a tool, its digest, and the schema of the activity
`admitted`      the file of the declarations that an operator has admitted
`registering`   the activities of admitted tools
`listing`       what a server lists, tool by tool
`connections`   a session with a server, and what it is asked
`sessions`      the session that each run has with a server, in whichever process
`process`       all connections of a process
`stdio`         a server that is a process: guarded, its messages bounded
`web`           a server at an address: its answers bounded
`results`       what a server answers, as the value of a call
`errors`        what can go wrong with a server

What a server says is data: it is bounded, shown to no model before it is admitted, and never parsed as a reference.
"""
