"""The command `handoff`: submit, follow and decide about jobs; start and check processes."""
