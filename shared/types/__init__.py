"""Pure types that both sides of a queue share: no Celery, no Redis, no network."""
