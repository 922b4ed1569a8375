-- Ask a person about calls of tools, and give the claim back. The handoff waits without a slot
-- until an answer comes or its deadline is over. Its checkpoints are stored already, and it has no
-- reservation. A call that was asked about keeps its question.
-- KEYS job.  ARGV: handoff, fence, keep_ms, deadline (Unix ms | 0), why, the calls (JSON:
-- pairs of id and tool), then one event for each call, then pairs of digest and compressed payload.
-- Returns 'ok' | 'decided' (a call has an answer by now, and the claim stays) | 'lost' | 'dropped'
-- | 'cancelled'
local job, handoff, FIRST = KEYS[1], ARGV[1], 7
local due = due_of(job, handoff)
local handoff_hash, member = handoff_key(job, handoff), member_of(job, handoff)
local kept_fence, state, asks_json = unpack(
  redis.call('HMGET', handoff_hash, 'fence', 'state', 'asks')
)
local version = job_of(job).version
local refusal = fence_refusal(version, kept_fence, state, ARGV[2])
if refusal then return refusal end
if is_cancelled(job) then return 'cancelled' end
local calls = from_json(ARGV[6])
local asks = from_json(asks_json or '') or {}
local events = {}
local open = open_calls(job)
local at, fields = now_ms(), {}
for n, pair in ipairs(calls) do
  local call, tool = unpack(pair)
  if not asks[call] then
    events[#events + 1] = ARGV[FIRST + n - 1]
    asks[call] = integer(version + #events)
    open[#open + 1] = asks[call] .. ':' .. tool
    fields['approval:' .. asks[call]] = CALL_APPROVAL
  elseif redis.call('HEXISTS', handoff_hash, 'decided:' .. asks[call]) == 1 then
    return 'decided'
  end
end
local keep = keep_from_now(ARGV[3], ARGV[4])
if #events > 0 then
  local status, job_asks = unpack(redis.call('HMGET', job, 'status', 'asks'))
  local asked_last = redis.call('HGET', progress_of(job), 'asked_last')
  if not waits_for_person(status, job_asks, asked_last, job) then fields.asked_at = integer(at) end
  add_payloads(job, ARGV, FIRST + #calls)
  append(job, events, 1, #events, at, fields)
  put_open_calls(job, open)
  make_due_soon(due, job, at)
end
give_back(handoff_hash, 'asked')
local MAX_WAIT_MS = 30 * 24 * 3600 * 1000
local until_ms = tonumber(ARGV[4]) > 0 and tonumber(ARGV[4]) or at + MAX_WAIT_MS
redis.call(
  'HSET', handoff_hash, 'waits', '1', 'deferred', integer(until_ms), 'doing', clip(ARGV[5]),
  'asks', cjson.encode(asks), 'asks_since', integer(at)
)
redis.call('ZADD', due, integer(until_ms), member)
redis.call('PEXPIRE', turns_key(job, handoff), integer(keep))
return 'ok'
