"""How well requests are routed, by labels that were written before there was a router."""
