-- Hand back a claim, because its process ends. The claim does not count, and its process puts the
-- message back into the queue.
-- KEYS job.  ARGV: handoff, fence, used (JSON or '').  Returns 1 | 0 (the claim is lost, or no
-- job needs the handoff)
local job, handoff = KEYS[1], ARGV[1]
local due = due_of(job, handoff)
local handoff_hash = handoff_key(job, handoff)
local kept_fence, state = unpack(redis.call('HMGET', handoff_hash, 'fence', 'state'))
if fence_refusal(job_of(job).version, kept_fence, state, ARGV[2]) then return 0 end
local used, member = from_json(ARGV[3]), member_of(job, handoff)
if used then settle(job, handoff_hash, used) else settle_lost(job, handoff_hash) end
settle_share(used and used.share, member, now_ms())
give_back(handoff_hash, 'released')
redis.call('ZREM', due, member)
local queue = redis.call('HGET', handoff_hash, 'queue')
if queue then record_sending(queue, { now_ms(), member }) end
return 1
