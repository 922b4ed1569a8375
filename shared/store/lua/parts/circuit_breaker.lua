-- Part of the scripts that admit a model call: the circuit breaker of a bucket.
--   closed      no strikes: all calls go
--   open        the provider refused a call (429, 529): no call before `until`
--   half-open   `until` is over: one call goes first, and the others wait for its answer
-- The bucket of a model that nobody has called yet is half-open, too: its first call shows the
-- limits. `rate_limiter.lua` describes the fields of a bucket.

-- Ms that the others wait at most for a first call: of an unknown bucket, and after a refusal.
local FIRST_CALL_MS, PROBE_MS = 3000, 30000

-- Decide if a call goes first. Returns whether it must wait for another first call, and whether it
-- is the first call itself.
local function try_first_call(bucket, call, at)
  local fields = bucket.fields
  local is_half_open = (fields.strikes or 0) > 0
  if fields.known and not is_half_open then return false, false end
  local is_awaited = fields.going and fields.going ~= call
  if is_awaited and fields.going_until > at then return true, false end
  -- a first call that was silent for so long has no limits to report
  if is_awaited and not is_half_open then return false, false end
  local max_ms = is_half_open and PROBE_MS or FIRST_CALL_MS
  redis.call('HSET', bucket.key, 'going', call, 'going_until', at + max_ms)
  return false, true
end

-- Open the circuit after a refusal, for a time that doubles with each strike. `refusal`: the report
-- of `record_provider_answer.lua`.
local function open_circuit(bucket, refusal, call, at)
  local fields = bucket.fields
  local strikes, is_probe = fields.strikes or 0, fields.going == call
  -- refusals of calls that were made at the same time tell nothing new
  if is_probe or strikes == 0 then strikes = strikes + 1 end
  local backoff = math.min(refusal.first * 2 ^ (strikes - 1), refusal.longest)
  local hold = backoff * (0.5 + refusal.dice / 2)
  if refusal.retry_after >= 0 then
    hold = math.min(refusal.retry_after + backoff * refusal.dice / 4, refusal.most)
  end
  fields['until'] = math.max(fields['until'] or 0, at + math.ceil(hold))
  redis.call(
    'HSET', bucket.key, 'until', fields['until'], 'why', clip(refusal.why), 'strikes', strikes
  )
  if is_probe then redis.call('HDEL', bucket.key, 'going', 'going_until') end
end

-- Close the circuit after the success of a first call that began at `asked_at` (Unix ms).
local function close_circuit(bucket, call, asked_at)
  if bucket.fields.going ~= call then return end
  redis.call('HDEL', bucket.key, 'going', 'going_until', 'until', 'why', 'strikes')
  redis.call('HSET', bucket.key, 'cleared', asked_at)
  bucket.fields['until'] = nil
end
