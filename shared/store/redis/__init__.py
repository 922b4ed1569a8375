"""Connections to Redis: addresses, TLS, versions, scripts and the fast path."""
