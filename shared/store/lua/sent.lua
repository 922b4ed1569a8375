-- Messages of handoffs that were lost, or were to be sent for the first time, have left: from here on they wait in their queues like any other.
-- Until this is said, every sweep finds them again: whoever was to send them may have died at it.
-- KEYS job, due.  ARGV handoff...
local job, due = KEYS[1], KEYS[2]
if redis.call('EXISTS', job) == 0 then return 0 end
for _, handoff in ipairs(ARGV) do
  local h, member = job .. ':h:' .. handoff, id_of(job) .. '/' .. handoff
  local f = redis.call('HMGET', h, 'state', 'lost', 'queue')
  if f[1] == 'issued' and f[2] and f[3] then -- or it was claimed meanwhile
    redis.call('HDEL', h, 'lost')
    redis.call('ZREM', due, member)
    redis.call('ZADD', 'handoff:waiting:' .. f[3], now_ms(), member)
  end
end
return 1
