-- A handoff whose message came.
-- KEYS job, due.  ARGV: the order of `claim`, and its answer.
return claim(KEYS[1], KEYS[2], ARGV)
