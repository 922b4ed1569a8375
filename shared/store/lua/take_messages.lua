-- Store the checkpoints of the messages that an agent takes before its next call, and their events.
-- KEYS job.  ARGV: handoff, fence, lease_ms, keep_ms, deadline (Unix ms | 0), number of stored
-- checkpoints that the claim knows, number of messages that the handoff knows then, number of
-- events, then the events, then as many checkpoints.
-- A repeated call after a lost answer stores nothing twice.
-- Returns 'ok' | 'lost' | 'dropped' | 'cancelled'
local job, handoff = KEYS[1], ARGV[1]
local due = due_of(job, handoff)
local handoff_hash, turns_list, FIRST = handoff_key(job, handoff), turns_key(job, handoff), 9
local kept_fence, state, messages = unpack(
  redis.call('HMGET', handoff_hash, 'fence', 'state', 'messages')
)
local version = job_of(job).version
local refusal = fence_refusal(version, kept_fence, state, ARGV[2])
if refusal then return refusal end
local stored = redis.call('LLEN', turns_list)
local known = tonumber(ARGV[6])
local knows = tonumber(ARGV[7])
local new = tonumber(ARGV[8])
local is_repeated = stored == known + new and tonumber(messages or 0) >= knows
if stored ~= known and not is_repeated then return 'lost' end
if is_cancelled(job) then return 'cancelled' end
local at = now_ms()
record_call(at, tonumber(ARGV[3]))
redis.call('HSET', handoff_hash, 'lease', integer(at + tonumber(ARGV[3])), 'heartbeat', integer(at))
if is_repeated then return 'ok' end
local keep = keep_from_now(ARGV[4], ARGV[5])
local turn = cjson.decode(ARGV[FIRST]).turn
record_taken(job, handoff, untaken(job, handoff_hash, handoff, messages), knows, turn)
redis.call('RPUSH', turns_list, unpack(ARGV, FIRST + new))
redis.call('PEXPIRE', turns_list, integer(keep))
redis.call('HSET', handoff_hash, 'messages', integer(knows))
append(job, ARGV, FIRST, new, at, {})
make_due_soon(due, job, at)
return 'ok'
