"""The state store: everything about jobs in Redis, and the only importer of `redis`."""
