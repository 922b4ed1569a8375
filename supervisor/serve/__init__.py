"""The HTTP server of `handoff serve`: the API below `/v1`."""
