-- Finish a handoff: see `parts/results.lua`.
-- KEYS job.  ARGV: the arguments of `finish`.  Returns its result
return finish(KEYS[1], ARGV)
