"""The tools of MCP servers: one connection to each server in a worker, opened at the first call.

A server is a foreign program. It may hang, end, send too much or break the protocol. The call then
fails, and the next call gets a new connection.
"""
