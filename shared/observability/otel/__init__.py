"""Export of spans to an OpenTelemetry collector. Only this package imports opentelemetry, and
only a process that exports spans imports this package.
"""
