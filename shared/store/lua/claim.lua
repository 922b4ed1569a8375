-- Claim a handoff whose message arrived.
-- KEYS job, due.  ARGV: the arguments of `claim`.  Returns its result.
return claim(KEYS[1], KEYS[2], ARGV)
