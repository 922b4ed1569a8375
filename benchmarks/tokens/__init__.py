"""The tokens and the money of ten jobs in this project and in other systems."""
