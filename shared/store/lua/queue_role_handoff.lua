-- Note that a role's handoff will be sent to a queue. It counts as lost until `mark_sent` confirms
-- it.
-- KEYS job.  ARGV: handoff, queue, bump_ms (time until the sweeper finds it again).
-- Returns 1 (send it) | 0 (it waits in a queue already, runs, or has ended)
local job, handoff, queue = KEYS[1], ARGV[1], ARGV[2]
local due = due_of(job, handoff)
local handoff_hash = handoff_key(job, handoff)
local state, waits_in, lost = unpack(redis.call('HMGET', handoff_hash, 'state', 'queue', 'lost'))
local is_waiting = waits_in and not lost
if state ~= 'issued' or is_waiting or redis.call('EXISTS', job) == 0 then return 0 end
local member = member_of(job, handoff)
redis.call('HSET', handoff_hash, 'queue', queue, 'lost', 1)
redis.call('ZADD', due, now_ms() + ARGV[3], member)
redis.call('HSETNX', 'handoff:queues', queue, 0)
return 1
