-- A turn in one round trip: store checkpoints, settle the last call, reserve the next one, renew
-- the lease, and check for a cancel and a pause.
-- KEYS job.  ARGV: `TurnArguments` in `positional_arguments.py`, then the new checkpoints. For
-- `takes_messages` and `last` of the next call see `HandoffClaim.reserve`.
-- A repeated call after a lost answer changes no budget (a bucket may count one call too many). If
-- the number of stored checkpoints is not the one that the claim knows, Redis has restored older
-- data, and the claim is lost. The next claim continues from the stored checkpoints.
-- Returns {'ok', share that `admit` took...} | {'lost'} | {'dropped'} | {'cancelled'} | {'paused'}
-- | {'wait'} | {'rate_limit', ms, why} | {'limit', level, name} | {'messages'}: the agent must
-- first take messages of users, and nothing is reserved.
local FIRST = 13 -- position of the first new checkpoint
local handoff, fence, lease_ms, keep_ms, deadline, used_json, worst_json, doing, known, tool_calls,
  gets_further, batch_id = unpack(ARGV, 1, FIRST - 1)
local job, lease, keep = KEYS[1], tonumber(lease_ms), keep_from_now(keep_ms, deadline)
local used, worst = from_json(used_json), from_json(worst_json)
known, tool_calls = tonumber(known), tonumber(tool_calls)
local new = #ARGV - FIRST + 1
local handoff_hash, turns_list = handoff_key(job, handoff), turns_key(job, handoff)
local member = id_of(job) .. '/' .. handoff

local fields = redis.call(
  'HMGET', handoff_hash, 'fence', 'state', 'agent', 'lost', 'claims', 'turn_at', 'messages',
  unpack(RESERVATION)
)
local kept_fence, state, agent, lost, claims, turn_at, messages = unpack(fields, 1, 7)
remember_reservation(handoff_hash, { unpack(fields, 8, 7 + #RESERVATION) })
local refusal = fence_refusal(job_of(job).version, kept_fence, state, fence)
if refusal then return { refusal } end
local stored = redis.call('LLEN', turns_list)
if stored ~= known and not (new > 0 and stored == known + new) then return { 'lost' } end
if new > 0 and stored == known then
  redis.call('RPUSH', turns_list, unpack(ARGV, FIRST))
  redis.call('PEXPIRE', turns_list, integer(keep))
  -- Progress shows that this handoff did not cause the lost claims: a handoff that freezes its
  -- process writes nothing. A last reply is not progress, because reading it may freeze the
  -- process.
  if claims ~= '1' and gets_further == '1' then
    redis.call('HSET', handoff_hash, 'claims', '1')
  end
  if tool_calls > 0 then redis.call('HINCRBY', handoff_hash, 'tool_calls', tool_calls) end
  if batch_id ~= '' then redis.call('HSET', handoff_hash, 'batch', batch_id) end
  if used then
    settle(job, handoff_hash, used)
    settle_share(used.share, member, now_ms())
  end
end
-- A turn ends when the next one asks for its call. A repeated request has its reservation already.
if worst and turn_at and not reservation_of(handoff_hash) then
  observe(now_ms() - tonumber(turn_at), 'turn_duration_seconds', label('agent', agent or ''))
  redis.call('HDEL', handoff_hash, 'turn_at')
end
if is_cancelled(job) then return { 'cancelled' } end
local paused = worst and paused_agent(agent)
if paused then -- between two turns: the claim ends here, and does not count
  unreserve(job, handoff_hash)
  give_back(handoff_hash, 'paused')
  pause_handoff(job, handoff, paused)
  return { 'paused' }
end

local at = now_ms()
record_call(at, lease)
redis.call(
  'HSET', handoff_hash, 'lease', integer(at + lease), 'heartbeat', integer(at), 'doing',
  clip(doing)
)
if lost then redis.call('HDEL', handoff_hash, 'lost') end
if worst and worst.takes_messages and #untaken(job, handoff_hash, handoff, messages) > 0 then
  return { 'messages' }
end
if worst then -- at the old end of the lease, the sweeper reads the new end
  local no, level_or_ms, why, taken = admit_call(job, handoff_hash, worst, member, at)
  if no == 'wait' then return { 'wait' } end
  if no == 'rate_limit' then return { 'rate_limit', level_or_ms, why } end
  if no then return { 'limit', level_or_ms, no } end
  -- no messages of users from now on
  if worst.last then redis.call('HSET', handoff_hash, 'takes_none', '1') end
  return { 'ok', unpack(taken or {}) }
end
return { 'ok' }
