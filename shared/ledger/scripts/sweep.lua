-- What time, or a lost message, makes necessary: popped and bumped in one step, so that any number of sweepers share the work.
-- KEYS due, queues.  ARGV most, bump_ms, grace_ms.  Returns `job` and `job/handoff` members.
local due, queues = KEYS[1], KEYS[2]
local most, bump, grace = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local at = now_ms()

local function standing(member)
  local job, handoff = string.match(member, '^(.-)/(.+)$')
  if not job then return nil end
  local h = 'handoff:{' .. job .. '}:h:' .. handoff
  local f = redis.call('HMGET', h, 'state', 'lease', 'queue')
  return { h = h, queue = f[3], is_gone = not f[1] or f[1] == 'done' or f[1] == 'dropped',
    is_free = f[1] == 'issued' or (f[1] == 'running' and tonumber(f[2]) <= at) }
end

-- A lease that ran out: its message is published again once, and then waits in its queue like any other, however long that is.
local found = {}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', at, 'LIMIT', 0, most)) do
  local one = standing(member)
  if one and one.is_gone then
    redis.call('ZREM', due, member)
  else
    if one and one.is_free and one.queue then
      redis.call('ZREM', due, member)
      redis.call('ZADD', 'handoff:waiting:' .. one.queue, at, member)
      redis.call('HSET', one.h, 'lost', 1)
    else
      redis.call('ZADD', due, at + bump, member)
    end
    found[#found + 1] = member
  end
end

-- A message that nobody claimed is lost when its queue is empty, or when one that was published later has been claimed. Age alone says nothing.
local claimed = redis.call('HGETALL', queues)
for i = 1, #claimed, 2 do
  local waiting = 'handoff:waiting:' .. claimed[i]
  local before = math.min(tonumber(claimed[i + 1]), at) - grace
  if redis.call('LLEN', claimed[i]) == 0 then before = at - grace end
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', waiting, '-inf', before, 'LIMIT', 0, most)) do
    local one = standing(member)
    if one and one.is_free then
      redis.call('HSET', one.h, 'lost', 1)
      redis.call('ZADD', waiting, at, member)
      found[#found + 1] = member
    else
      redis.call('ZREM', waiting, member)
    end
  end
end
return found
