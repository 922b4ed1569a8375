"""Everything about jobs in Redis, and the only importer of `redis`: journal, claims, payloads, budgets, documents, roles."""
