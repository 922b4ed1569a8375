-- A role's handoff is about to be sent to a queue: from here on it waits there like any other, and is sent again only when it is lost.
-- KEYS job, due.  ARGV handoff, queue.  Returns 1 (send it) | 0 (it waits there already, or is not to be had)
local job, due, handoff, queue = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local h = job .. ':h:' .. handoff
local f = redis.call('HMGET', h, 'state', 'queue', 'lost')
if f[1] ~= 'issued' or (f[2] and not f[3]) or redis.call('EXISTS', job) == 0 then return 0 end
local member = string.match(job, '{(.-)}') .. '/' .. handoff
redis.call('HSET', h, 'queue', queue)
redis.call('HDEL', h, 'lost')
redis.call('ZREM', due, member)
redis.call('ZADD', 'handoff:waiting:' .. queue, now_ms(), member)
redis.call('HSETNX', 'handoff:queues', queue, 0)
return 1
