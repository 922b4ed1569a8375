-- The ends of claims that brought no result, and their history in the hash of the handoff.

-- Record a claim that ended without a result, as a line of the field `past_claims` of the handoff's
-- hash, the newest last. A line has the beginning and the end (Unix ms), the reason of the end, and
-- the holder. `how` is a value of `ClaimEnd`: lost | released | deferred | paused | asked.
local MAX_PAST_CLAIMS = 20
local function note_claim_end(handoff_hash, until_ms, how)
  local claimed_at, worker, past_claims = unpack(
    redis.call('HMGET', handoff_hash, 'claimed_at', 'worker', 'past_claims')
  )
  if not claimed_at then return end
  local lines = {}
  for line in string.gmatch(short(past_claims) or '', '[^\n]+') do lines[#lines + 1] = line end
  local line = { short(claimed_at) or '', short(until_ms) or '', how, short(worker) or '' }
  lines[#lines + 1] = table.concat(line, ' ')
  local oldest = math.max(1, #lines - MAX_PAST_CLAIMS + 1)
  redis.call('HSET', handoff_hash, 'past_claims', table.concat(lines, '\n', oldest))
  redis.call('HDEL', handoff_hash, 'claimed_at', 'turn_at')
end

-- End a claim without a result and without fault. It does not count as a claim, and later messages
-- with its fence are refused. `how`: see `note_claim_end`.
local function give_back(handoff_hash, how)
  note_claim_end(handoff_hash, integer(now_ms()), how)
  redis.call('HINCRBY', handoff_hash, 'claims', '-1')
  redis.call('HDEL', handoff_hash, 'fence')
  redis.call('HSET', handoff_hash, 'state', 'issued', 'lease', '0')
end

-- Count and record a claim whose process is dead or treated as dead. The last heartbeat counts as
-- its end.
local function count_lost(job, handoff_hash)
  add_to_figure(handoff_hash, 'lost_claims', '1')
  add_to_metric(
    '1', 'lease_losses', label('tenant', job_of(job).tenant),
    label('agent', redis.call('HGET', handoff_hash, 'agent') or '')
  )
  local ended_at = redis.call('HGET', handoff_hash, 'heartbeat') or integer(now_ms())
  note_claim_end(handoff_hash, ended_at, 'lost')
end
