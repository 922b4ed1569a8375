-- The end of a handoff: see `finishing.lua`.
-- KEYS job, due.  ARGV its order
return finish(KEYS[1], KEYS[2], ARGV)
