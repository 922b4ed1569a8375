-- In front of the scripts that let a model call go, after the books and the pace.

-- How long a handoff has waited for its provider, in ms: since `waits_since` (Unix ms) while it does, in a slot or parked, and `waited` of the times before.
local function waited(h, at)
  local f = redis.call('HMGET', h, 'waits_since', 'waited')
  return tonumber(f[2] or 0) + math.max(0, at - tonumber(f[1] or at)), f[1]
end

-- Whether a call may be made: its worst case fits the budget, and its lane lets it go. Returns nil, nil, nil and what was taken; or why not:
-- what `reserve` says (and whose limit it is), or 'pace', ms and why.
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
  unreserve(job, h) -- who waits for the provider keeps nobody from the budget
  return 'pace', ms, taken_or_why
end
