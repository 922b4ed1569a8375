"""The workers, which run handoffs with the instructions and tools of their specialists."""
