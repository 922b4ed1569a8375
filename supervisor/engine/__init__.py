"""The shell around the lifecycle: job loop, decisions, roles, dispatch and sweeper."""
