"""Small helpers for text, JSON and YAML that import nothing else of this project."""
