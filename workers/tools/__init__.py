"""What specialists can call: one file each, and the registry."""
