"""Settings: their types, their bounds, and the environment that they come from."""
