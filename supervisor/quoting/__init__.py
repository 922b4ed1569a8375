"""Quotes: the likely cost and time of a job, from its plan and from earlier handoffs and
quotes of this installation.
"""
