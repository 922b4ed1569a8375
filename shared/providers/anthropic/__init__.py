"""The port to the Messages API, and the only importer of the `anthropic` SDK."""
