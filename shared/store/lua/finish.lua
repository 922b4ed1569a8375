-- Finish a handoff: see `finishing.lua`.
-- KEYS job, due.  ARGV: its arguments
return finish(KEYS[1], KEYS[2], ARGV)
