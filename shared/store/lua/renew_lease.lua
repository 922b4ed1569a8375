-- Renew a lease, and store the heartbeat.
-- KEYS job.  ARGV: handoff, fence, lease_ms, doing ('': unchanged), compressed draft ('':
-- unchanged).
-- Returns 'ok' | 'messages' (ok, and users have sent messages to the agent) | 'lost' | 'dropped' |
-- 'cancelled'
local job, handoff = KEYS[1], ARGV[1]
local due = due_of(job, handoff)
local handoff_hash = handoff_key(job, handoff)
local kept_fence, state, lost, known = unpack(
  redis.call('HMGET', handoff_hash, 'fence', 'state', 'lost', 'messages')
)
local refusal = fence_refusal(job_of(job).version, kept_fence, state, ARGV[2])
if refusal then return refusal end
if is_cancelled(job) then return 'cancelled' end
local at = now_ms()
record_call(at, tonumber(ARGV[3]))
redis.call('HSET', handoff_hash, 'lease', at + ARGV[3], 'heartbeat', at)
if lost then redis.call('HDEL', handoff_hash, 'lost') end
if ARGV[4] ~= '' then redis.call('HSET', handoff_hash, 'doing', clip(ARGV[4])) end
if ARGV[5] ~= '' then
  local keep_ms = integer(math.max(1, left_of(handoff_hash)))
  redis.call('SET', draft_key(job, handoff), ARGV[5], 'PX', keep_ms)
end
redis.call('ZADD', due, at + ARGV[3], member_of(job, handoff))
return #untaken(job, handoff_hash, handoff, known) > 0 and 'messages' or 'ok'
