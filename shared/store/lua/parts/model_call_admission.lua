-- Part of the scripts that admit a model call, after budgets and rate limits.

-- Return the ms that a handoff has waited for its provider, and the start of the current wait (Unix
-- ms; false if it does not wait). The total is the current wait plus the earlier waits in the field
-- `waited`. A handoff waits with or without a slot.
local function waited(handoff_hash, at)
  local since, earlier_ms = unpack(redis.call('HMGET', handoff_hash, 'waits_since', 'waited'))
  local current_ms = math.max(0, at - tonumber(since or at))
  return tonumber(earlier_ms or 0) + current_ms, since
end

-- Admit a call if its upper bound fits the budget and its bucket allows it. Returns nil, nil, nil
-- and the taken share (nil if the call has no bucket); or the refusal: the result of `reserve` (and
-- the owner of the limit), or 'rate_limit', the ms to wait and the reason.
local function admit_call(job, handoff_hash, worst, member, at)
  local refusal, level = reserve(job, handoff_hash, worst)
  if refusal or not worst.call then return refusal, level end
  local ms, taken_or_why = rate_limiter().admit(worst.call, member, at)
  if not ms then
    local waited_ms, waits = waited(handoff_hash, at)
    if waits then
      redis.call('HSET', handoff_hash, 'waited', integer(waited_ms))
      redis.call('HDEL', handoff_hash, 'waits_since')
    end
    return nil, nil, nil, taken_or_why
  end
  redis.call('HSETNX', handoff_hash, 'waits_since', integer(at))
  unreserve(job, handoff_hash) -- a call that waits for the provider must not block the budget
  return 'rate_limit', ms, taken_or_why
end
