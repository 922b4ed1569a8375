"""The supervisor, which plans jobs, issues handoffs and reviews results; the client, the command
`handoff` and the HTTP server.
"""
