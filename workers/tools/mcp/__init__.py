"""The tools of MCP servers: one connection to each server in a worker, opened at the first call.

A server is a foreign program. It may hang, die, flood or lie: then a call has failed, and the
next call gets a new connection.
"""
