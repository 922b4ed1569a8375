"""The supervisor's own agents: their instructions (Markdown), what they are asked, and how
their answers become plain values.
"""
