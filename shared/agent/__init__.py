"""The agent: the turn loop, the port to a model, and the types of their messages."""
