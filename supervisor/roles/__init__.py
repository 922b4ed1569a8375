"""The supervisor's roles: their instructions (Markdown), their briefs, and the conversion of
their answers to plain values.
"""
