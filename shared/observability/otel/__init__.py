"""Spans for an OpenTelemetry collector. The only importer of opentelemetry; loaded only where
spans are sent.
"""
