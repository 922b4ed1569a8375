"""One attempt at a handoff, and the set-up of the process that runs it."""
