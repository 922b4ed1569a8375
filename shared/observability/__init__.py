"""Logs, redaction of secrets, OpenTelemetry and failpoints."""
