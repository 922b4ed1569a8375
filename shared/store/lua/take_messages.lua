-- Store the checkpoints of the messages that an agent takes before its next call, and their events.
-- KEYS job.  ARGV: `TakeMessagesArguments` in `positional_arguments.py`, then the events, then as
-- many checkpoints.
-- A repeated call after a lost answer stores nothing twice.
-- Returns 'ok' | 'lost' | 'dropped' | 'cancelled'
local FIRST = 9 -- position of the first event
local handoff, fence, lease_ms, keep_ms, deadline, known, knows, events = unpack(ARGV, 1, FIRST - 1)
local job = KEYS[1]
local due = due_of(job, handoff)
local handoff_hash, turns_list = handoff_key(job, handoff), turns_key(job, handoff)
local kept_fence, state, messages = unpack(
  redis.call('HMGET', handoff_hash, 'fence', 'state', 'messages')
)
local version = job_of(job).version
local refusal = fence_refusal(version, kept_fence, state, fence)
if refusal then return refusal end
local stored = redis.call('LLEN', turns_list)
local new = tonumber(events)
known, knows = tonumber(known), tonumber(knows)
local is_repeated = stored == known + new and tonumber(messages or 0) >= knows
if stored ~= known and not is_repeated then return 'lost' end
if is_cancelled(job) then return 'cancelled' end
local at = now_ms()
local lease = tonumber(lease_ms)
record_call(at, lease)
redis.call('HSET', handoff_hash, 'lease', integer(at + lease), 'heartbeat', integer(at))
if is_repeated then return 'ok' end
local keep = keep_from_now(keep_ms, deadline)
local turn = from_json(ARGV[FIRST]).turn
record_taken(job, handoff, untaken(job, handoff_hash, handoff, messages), knows, turn)
redis.call('RPUSH', turns_list, unpack(ARGV, FIRST + new))
redis.call('PEXPIRE', turns_list, integer(keep))
redis.call('HSET', handoff_hash, 'messages', integer(knows))
append(job, ARGV, FIRST, new, at, {})
make_due_soon(due, job, at)
return 'ok'
