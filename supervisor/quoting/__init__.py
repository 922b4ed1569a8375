"""What a job will likely cost and take: from its plan, and from what this installation's
handoffs and quotes were like before.
"""
