"""`handoff trace`: a job that was, or is, as one page: `timeline` says who ran when and what
made it last, `page` writes the HTML.
"""
