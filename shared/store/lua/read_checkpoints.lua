-- Return the checkpoints of a handoff. Reads only.
-- KEYS turns.
-- Returns the result of `read_checkpoints`
return read_checkpoints(KEYS[1])
