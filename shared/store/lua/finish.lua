-- Finish a handoff: see `parts/results.lua`.
-- KEYS job, due.  ARGV: the arguments of `finish`.  Returns its result
return finish(KEYS[1], KEYS[2], ARGV)
