-- Delete all messages of a queue, for an operator. The sweeper publishes again the messages that a
-- job still needs.
-- KEYS queue.  Returns the number of deleted messages
local queue = KEYS[1]
local fair, count, at = fair_key(queue), redis.call('LLEN', queue), integer(now_ms())
for _, entry in ipairs(redis.call('ZRANGE', fair, 0, -1)) do
  redis.call('ZADD', 'handoff:out:' .. queue, at, string.match(entry, '^%S+'))
end
redis.call('DEL', queue, fair, fair .. ':messages', fair .. ':next')
return count
