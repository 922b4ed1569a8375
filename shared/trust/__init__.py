"""Keys and signatures: the senders that a message may have, and the proof that it is unchanged."""
