-- Part of the scripts that claim.

-- Give a handoff a limit in micro-dollars, unless it has a lower one. `most`: the limit, or nil.
local function lower_max_usd(handoff_hash, most)
  if not most then return end
  local limit = tonumber(redis.call('HGET', handoff_hash, 'max_usd') or most)
  redis.call('HSET', handoff_hash, 'max_usd', integer(math.min(limit, most)))
end

-- End the wait of a handoff for a person's approval of a call, or for a batch, because it is
-- claimed again. The wait does not count as the handoff's own time. `since`: start of the wait
-- (Unix ms), or nil; `earlier_ms`: its earlier waits. Returns the ms of all waits.
local function end_wait(handoff_hash, since, earlier_ms, at)
  local waited_ms = tonumber(earlier_ms or 0)
  if since then
    waited_ms = waited_ms + at - tonumber(since)
    redis.call('HSET', handoff_hash, 'asked_ms', integer(waited_ms))
    redis.call('HDEL', handoff_hash, 'asks_since', 'batch_since')
  end
  return waited_ms
end

-- Return the checkpoints of a handoff; one empty text if they are too long. A worker of the same
-- agent that was taken over may have written any number of checkpoints, of any length.
local MAX_TURNS_BYTES = 64 * 10 ^ 6 -- as in `claim_requests.py`
local COST = 100 -- bytes besides the text
local function read_checkpoints(turns_list)
  local checkpoints, left = {}, MAX_TURNS_BYTES
  for checkpoint in each_entry(turns_list, 0, redis.call('LLEN', turns_list) - 1) do
    left = left - #checkpoint - COST
    if left < 0 then return { '' } end
    checkpoints[#checkpoints + 1] = checkpoint
  end
  return checkpoints
end

-- Claim the exclusive right to run one handoff, for one lease.
-- Arguments: `ClaimArguments` in `positional_arguments.py`. The store keeps the SHA-1 of the fence.
-- A call that is repeated after a lost answer is the same claim.
-- `fresh`: digest and agent of a handoff that the same script issues. No other process can have
-- touched that handoff.
-- Returns {verdict, reserved (1|0), checkpoints, share that `admit` took, first claim (Unix ms),
-- earlier claims that ended without progress, ms of waiting for a person's approval of a call or
-- for a batch, the result of an equal handoff to copy (empty: none)}. Verdicts: granted |
-- exhausted | deferred | paused | following | busy | duplicate | cancelled | unknown. The last
-- seven have only the first three values. Claims that were given back do not count.
local function claim(job, arguments, fresh)
  local handoff, digest, worker, lease_ms, most_claims, keep_ms, deadline, worst_json, fence,
    max_microusd, run_name = unpack(arguments, 1, 11)
  local lease = tonumber(lease_ms)
  local keep = keep_from_now(keep_ms, deadline)
  local worst = from_json(worst_json)
  local handoff_hash, turns_list = handoff_key(job, handoff), turns_key(job, handoff)
  local at = now_ms()
  local state, issued_digest, claims, queue, deferred, agent, started_at
  local reserved_turns, messages, asks_since, asked_ms, batch_since
  if fresh then
    state, issued_digest, agent = 'issued', fresh.digest, fresh.agent
  else
    local stored = redis.call(
      'HMGET', handoff_hash, 'state', 'digest', 'claims', 'queue', 'deferred', 'agent',
      'started_at', 'r_turns', 'messages', 'asks_since', 'asked_ms', 'batch_since'
    )
    state, issued_digest, claims, queue, deferred, agent, started_at = unpack(stored, 1, 7)
    reserved_turns, messages, asks_since, asked_ms, batch_since = unpack(stored, 8, 12)
  end
  if not state or issued_digest ~= digest or not job_of(job).version then
    return { 'unknown', 0, {} }
  end
  if state == 'done' or state == 'dropped' then return { 'duplicate', 0, {} } end
  if is_cancelled(job) then return { 'cancelled', 0, {} } end
  record_call(at, lease)

  local is_again, is_taken_over = false, false
  if state == 'running' then
    local kept_fence, lease_until = unpack(redis.call('HMGET', handoff_hash, 'fence', 'lease'))
    is_again = is_fence(kept_fence, fence)
    if not is_again and lease_end(tonumber(lease_until)) > at then return { 'busy', 0, {} } end
    is_taken_over = not is_again
  end
  -- a second copy of its message
  if deferred and tonumber(deferred) > at then return { 'deferred', 0, {} } end
  if is_taken_over then count_lost(job, handoff_hash) end -- before a sweep has found it
  claims = tonumber(claims or 0)
  -- the caller has not had its answer, so no call is in flight
  if is_again then claims = claims - 1 end

  local is_batched = reserved_turns and redis.call('HEXISTS', handoff_hash, 'r_batch') == 1
  if reserved_turns and is_again and not is_batched then
    unreserve(job, handoff_hash)
  elseif reserved_turns then
    settle_lost(job, handoff_hash)
  end
  if not is_batched then reservations[handoff_hash] = false end
  local paused = paused_agent(agent)
  if paused then
    redis.call('HSET', handoff_hash, 'claims', integer(claims))
    redis.call('HDEL', handoff_hash, 'fence')
    pause_handoff(job, handoff, paused)
    return { 'paused', 0, {} }
  end

  local member = id_of(job) .. '/' .. handoff
  local verdict = claims >= tonumber(most_claims) and 'exhausted' or 'granted'
  local copied
  local is_shared = verdict == 'granted' and (run_name or '') ~= ''
  local may_share = is_shared and redis.call('LLEN', turns_list) == 0
  if may_share and #untaken(job, handoff_hash, handoff, messages) == 0 then
    copied = share_run(job, handoff, run_name, tonumber(deadline), keep, state == 'issued', at)
    if copied == 'following' then
      if queue then leave_queue(queue, member) end
      redis.call('HDEL', handoff_hash, 'lost')
      return { 'following', 0, {} }
    end
  end

  local now, until_ms = integer(at), integer(at + lease)
  started_at = started_at or now
  -- before the writes that a full Redis accepts
  redis.call('ZADD', due_of(job, handoff), until_ms, member)
  redis.call(
    'HSET', handoff_hash, 'state', 'running', 'fence', redis.sha1hex(fence), 'worker', worker,
    'lease', until_ms, 'claims', integer(claims + 1), 'heartbeat', now, 'started_at', started_at,
    'claimed_at', now
  )
  lower_max_usd(handoff_hash, tonumber(max_microusd))
  if not fresh then
    redis.call('HDEL', handoff_hash, 'lost', 'waits', 'unread', 'deferred', 'bucket')
  end
  local waited_ms = end_wait(handoff_hash, asks_since or batch_since, asked_ms, at)
  if queue then leave_queue(queue, member) end
  local checkpoints = fresh and {} or read_checkpoints(turns_list)
  if #checkpoints > 0 then redis.call('PEXPIRE', turns_list, integer(keep)) end

  local may_call = worst and verdict == 'granted' and #checkpoints == 0 and not copied
  if may_call and worst.takes_messages and not fresh then
    may_call = #untaken(job, handoff_hash, handoff, messages) == 0
  end
  local is_reserved, share = false, nil
  if may_call then
    local refusal, _, _, taken = admit_call(job, handoff_hash, worst, member, at)
    is_reserved, share = not refusal, taken
  end
  return {
    verdict, is_reserved and 1 or 0, checkpoints, share or {}, tonumber(started_at), claims,
    waited_ms, copied or {},
  }
end
