"""The lifecycle of a job: its events and the next commands. Only pure functions over values."""
