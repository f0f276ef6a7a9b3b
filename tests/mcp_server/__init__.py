"""The backend as an MCP server, asked by the SDK's client and by others."""
