"""The full-text index of a host over the documents of all jobs that it works on."""
