"""How well contradicting claims are found, by labels that were written before there was a finder."""
