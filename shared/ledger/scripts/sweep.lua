-- What time, or a lost message, makes necessary: popped and bumped in one step, so that any number of sweepers share the work.
-- KEYS due, queues.  ARGV most, bump_ms, grace_ms.  Returns `job` and `job/handoff` members.
local due, queues = KEYS[1], KEYS[2]
local most, bump, grace = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local at = now_ms()
local found = redis.call('ZRANGEBYSCORE', due, '-inf', at, 'LIMIT', 0, most)
for _, member in ipairs(found) do redis.call('ZADD', due, at + bump, member) end

-- A handoff that nobody claimed is lost when its queue is empty, or when one that was published later has been claimed. Age alone says nothing.
local claimed = redis.call('HGETALL', queues)
for i = 1, #claimed, 2 do
  local waiting = 'handoff:waiting:' .. claimed[i]
  local before = math.min(tonumber(claimed[i + 1]), at) - grace
  if redis.call('LLEN', claimed[i]) == 0 then before = at - grace end
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', waiting, '-inf', before, 'LIMIT', 0, most)) do
    local job, handoff = string.match(member, '^(.-)/(.+)$')
    local h = 'handoff:{' .. job .. '}:h:' .. handoff
    if redis.call('HGET', h, 'state') == 'issued' then
      redis.call('HSET', h, 'lost', 1)
      redis.call('ZADD', waiting, at, member)
      found[#found + 1] = member
    else
      redis.call('ZREM', waiting, member)
    end
  end
end
return found
