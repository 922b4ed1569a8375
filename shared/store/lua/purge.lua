-- A queue is emptied by hand. What a job still waits for is lost with it, and is published again by the sweeper.
-- KEYS queue.  Returns how many messages there were
local queue = KEYS[1]
local fair, count, at = 'handoff:fair:' .. queue, redis.call('LLEN', queue), whole(now_ms())
for _, entry in ipairs(redis.call('ZRANGE', fair, 0, -1)) do
  redis.call('ZADD', 'handoff:out:' .. queue, at, string.match(entry, '^%S+'))
end
redis.call('DEL', queue, fair, fair .. ':messages', fair .. ':next')
return count
