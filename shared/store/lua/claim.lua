-- Claim a handoff whose message arrived.
-- KEYS job.  ARGV: the arguments of `claim`.  Returns its result.
-- `parts/claims.lua` has the function, because `fair_dequeue_many.lua` uses it, too.
return claim(KEYS[1], ARGV)
