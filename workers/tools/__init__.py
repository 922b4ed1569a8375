"""Built-in tools of specialists, one file each, and the registry."""
