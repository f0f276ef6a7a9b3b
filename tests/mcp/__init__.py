"""Tools of MCP servers: those of others as they are, and one that does everything wrong."""
