"""Requests to hosts whose names an untrusted text may have chosen."""
