-- Record a message that this process cannot read. If the store has issued it, a process of another
-- version wrote it. Then it is left to processes of that version for patience_ms, and after that
-- the handoff waits. The letter is stored in the same step, so that no handoff waits
-- without a letter.
-- KEYS job, dead.  ARGV: handoff, digest of the message, patience_ms, the letter.
-- Returns 'unknown' (not issued) | 'over' (the handoff runs, or has ended) | 'left' (the sweeper
-- publishes it again) | 'dead' (waits until `handoff dead requeue`)
local job, handoff = KEYS[1], ARGV[1]
local due = due_of(job, handoff)
local handoff_hash, member = handoff_key(job, handoff), member_of(job, handoff)
local state, digest, queue, unread_since = unpack(
  redis.call('HMGET', handoff_hash, 'state', 'digest', 'queue', 'unread')
)
if digest ~= ARGV[2] or redis.call('EXISTS', job) == 0 then return 'unknown' end
if state ~= 'issued' then return 'over' end
local at = now_ms()
if not unread_since then redis.call('HSET', handoff_hash, 'unread', at) end
if at - (unread_since or at) < tonumber(ARGV[3]) then return 'left' end
redis.call('HSET', handoff_hash, 'waits', 1)
redis.call('HDEL', handoff_hash, 'lost', 'unread')
redis.call('ZREM', due, member)
if queue then leave_queue(queue, member) end
redis.call('LPUSH', KEYS[2], ARGV[4])
add_to_metric('1', 'dead_letters', label('agent', queue or ''))
return 'dead'
