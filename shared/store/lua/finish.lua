-- Finish a handoff: see `parts/results.lua`.
-- KEYS job, due.  ARGV: its arguments
return finish(KEYS[1], KEYS[2], ARGV)
