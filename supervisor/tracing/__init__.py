"""The HTML page of `handoff trace`: `timeline` computes when each handoff ran and the critical
path, and `page` writes the HTML.
"""
