"""Pure language helpers: claim comparison, task similarity, citations and sanitizing."""
