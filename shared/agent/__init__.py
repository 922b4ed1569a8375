"""The agent: one loop of turns, the port to a model, and what stands behind the port."""
