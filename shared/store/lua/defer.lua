-- Defer a handoff whose next call must wait long for its provider, or whose call is in a batch. Its
-- slot is free, and the sweeper publishes it again after the given time. The claim does not count.
-- Its checkpoints are stored already. It has no reservation, except that of a call in a batch.
-- KEYS job.  ARGV: handoff, fence, ms, why, bucket ('' none).  Returns 1 | 0 (the claim is
-- lost, or no job needs the handoff)
local job, handoff, why = KEYS[1], ARGV[1], ARGV[4]
local due = due_of(job, handoff)
local handoff_hash, member = handoff_key(job, handoff), member_of(job, handoff)
local kept_fence, state = unpack(redis.call('HMGET', handoff_hash, 'fence', 'state'))
if fence_refusal(job_of(job).version, kept_fence, state, ARGV[2]) then return 0 end
local at = now_ms()
local until_ms = at + tonumber(ARGV[3])
give_back(handoff_hash, 'deferred')
redis.call('HSET', handoff_hash, 'waits', 1, 'deferred', until_ms, 'doing', clip(why))
local is_batched = redis.call('HEXISTS', handoff_hash, 'r_batch') == 1
if is_batched then redis.call('HSET', handoff_hash, 'batch_since', integer(at)) end
redis.call('ZADD', due, until_ms, member)
if ARGV[5] ~= '' then -- the handoff keeps its place in the line
  redis.call('HSET', handoff_hash, 'bucket', ARGV[5])
  local limiter = rate_limiter()
  local bucket = limiter.bucket_of(ARGV[5])
  if bucket.limited then
    local alive_until = until_ms + limiter.DEFERRED_ALIVE_MS
    limiter.join_line(bucket, limiter.call_of(member), at, alive_until)
  end
end
return 1
