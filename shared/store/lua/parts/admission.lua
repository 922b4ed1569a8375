-- Part of the scripts that admit a model call, after budgets and rate limits.

-- Return the ms that a handoff has waited for its provider: since `waits_since` (Unix ms) while it
-- waits, with or without a slot, plus earlier waits in `waited`.
local function waited(h, at)
  local f = redis.call('HMGET', h, 'waits_since', 'waited')
  return tonumber(f[2] or 0) + math.max(0, at - tonumber(f[1] or at)), f[1]
end

-- Admit a call if its upper bound fits the budget and its bucket allows it. Returns nil, nil, nil
-- and the taken share; or the refusal: the result of `reserve` (and the owner of the limit), or
-- 'pace', ms and the reason.
local function let_go(job, h, worst, member, at)
  local no, level = reserve(job, h, worst)
  if no or not worst.pace then return no, level end
  local ms, taken_or_why = lanes().admit(worst.pace, member, at)
  if not ms then
    local so_long, waits = waited(h, at)
    if waits then
      redis.call('HSET', h, 'waited', whole(so_long))
      redis.call('HDEL', h, 'waits_since')
    end
    return nil, nil, nil, taken_or_why
  end
  redis.call('HSETNX', h, 'waits_since', whole(at))
  unreserve(job, h) -- a call that waits for the provider must not block the budget
  return 'pace', ms, taken_or_why
end
