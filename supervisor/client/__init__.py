"""The Python client: submit, follow, report, export, fleet and control."""
