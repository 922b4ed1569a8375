"""The files in `deploy/`."""
