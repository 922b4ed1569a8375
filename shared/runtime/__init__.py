"""The run of one attempt at a handoff, and the set-up of its process."""
