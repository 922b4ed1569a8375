"""Connections to Redis: addresses, TLS, scripts."""
