-- Part of the scripts that claim.

-- Give a handoff a limit in micro-dollars, unless it has a lower one. `most`: the limit, or nil.
local function lower_max_usd(h, most)
  if not most then return end
  local limit = tonumber(redis.call('HGET', h, 'max_usd') or most)
  redis.call('HSET', h, 'max_usd', whole(math.min(limit, most)))
end

-- Claim the exclusive right to run one handoff, for one lease.
-- Arguments: handoff, digest of the message, worker, lease_ms, max_claims, keep_ms, deadline (ms |
-- 0), upper bound of the first call (JSON or ''), fence: a random word that only this claim knows
-- (the store keeps its SHA-1),
-- most micro-dollars of the handoff by the file of this process ('': no limit),
-- name of the run that equal handoffs share ('': it shares none; see `parts/shared_runs.lua`).
-- A call that is repeated after a lost answer is the same claim.
-- `fresh`: digest and role of a handoff that the same script issues. No other process can have
-- touched that handoff.
-- Returns {verdict, reserved (1|0), checkpoints, share that `admit` took, first claim (Unix ms),
-- earlier claims that ended without progress, ms of waiting for a person's approval of a call or
-- for a batch, the result of an equal handoff to copy (empty: none)}. Verdicts: granted |
-- exhausted | deferred | paused | following | busy | duplicate | cancelled | unknown. The last
-- seven have only the first three values. Claims that were given back do not count.
local function claim(job, arguments, fresh)
  local handoff, digest, worker = arguments[1], arguments[2], arguments[3]
  local lease = tonumber(arguments[4])
  local max_claims = tonumber(arguments[5])
  local keep = keep_from_now(arguments[6], arguments[7])
  local worst = decoded(arguments[8])
  local h, t = handoff_key(job, handoff), turns_key(job, handoff)
  local at = now_ms()

  local state, issued_as, claims, queue, deferred, role, began
  local reserved_turns, knows, asks_since, asked_ms, batch_since
  if fresh then
    state, issued_as, role = 'issued', fresh.digest, fresh.role
  else
    local asked = redis.call(
      'HMGET', h, 'state', 'digest', 'claims', 'queue', 'deferred', 'role', 'started_at', 'r_turns',
      'messages', 'asks_since', 'asked_ms', 'batch_since'
    )
    state, issued_as, claims, queue, deferred, role, began = unpack(asked, 1, 7)
    reserved_turns, knows, asks_since, asked_ms, batch_since = unpack(asked, 8, 12)
  end
  if not state or issued_as ~= digest or not job_of(job).version then
    return { 'unknown', 0, {} }
  end
  if state == 'done' or state == 'dropped' then return { 'duplicate', 0, {} } end
  if is_cancelled(job) then return { 'cancelled', 0, {} } end
  note_call(at, lease)
  local fence, is_again, is_taken_over = arguments[9], false, false
  if state == 'running' then
    local its = redis.call('HMGET', h, 'fence', 'lease')
    is_again = is_fence(its[1], fence)
    if not is_again and end_of(tonumber(its[2])) > at then return { 'busy', 0, {} } end
    is_taken_over = not is_again
  end
  -- a second copy of its message
  if deferred and tonumber(deferred) > at then return { 'deferred', 0, {} } end

  if is_taken_over then count_lost(job, h) end -- before a sweep has found it
  claims = tonumber(claims or 0)
  -- the caller has not had its answer, so no call is in flight
  if is_again then claims = claims - 1 end
  local is_batched = reserved_turns and redis.call('HEXISTS', h, 'r_batch') == 1
  if reserved_turns and is_again and not is_batched then
    unreserve(job, h)
  elseif reserved_turns then
    settle_lost(job, h)
  end
  if not is_batched then reservations[h] = false end

  local paused = if_paused(role)
  if paused then
    redis.call('HSET', h, 'claims', whole(claims))
    redis.call('HDEL', h, 'fence')
    hold(job, handoff, paused)
    return { 'paused', 0, {} }
  end

  local member = id_of(job) .. '/' .. handoff
  local verdict, name, copied = 'granted', arguments[11] or '', nil
  if claims >= max_claims then verdict = 'exhausted' end
  local is_shared = verdict == 'granted' and name ~= '' and redis.call('LLEN', t) == 0
  if is_shared and #untaken(job, h, handoff, knows) == 0 then
    copied = share_run(job, handoff, name, tonumber(arguments[7]), keep, state == 'issued', at)
    if copied == 'following' then
      if queue then forget(queue, member) end
      redis.call('HDEL', h, 'lost')
      return { 'following', 0, {} }
    end
  end
  local now, until_ms = whole(at), whole(at + lease)
  began = began or now
  -- before the writes that a full Redis accepts
  redis.call('ZADD', due_of(job, handoff), until_ms, member)
  redis.call(
    'HSET', h, 'state', 'running', 'fence', redis.sha1hex(fence), 'worker', worker, 'lease',
    until_ms, 'claims', whole(claims + 1), 'heartbeat', now,
    'started_at', began, 'claimed_at', now
  )
  lower_max_usd(h, tonumber(arguments[10]))
  if not fresh then redis.call('HDEL', h, 'lost', 'held', 'unread', 'deferred', 'bucket') end
  asks_since = asks_since or batch_since
  if asks_since then -- the time of the wait does not count as the handoff's own time
    asked_ms = tonumber(asked_ms or 0) + at - tonumber(asks_since)
    redis.call('HSET', h, 'asked_ms', whole(asked_ms))
    redis.call('HDEL', h, 'asks_since', 'batch_since')
  end
  if queue then forget(queue, member) end
  local checkpoints = fresh and {} or redis.call('LRANGE', t, '0', '-1')
  if #checkpoints > 0 then redis.call('PEXPIRE', t, whole(keep)) end
  local no, _, _, taken = 'not asked', nil, nil, nil
  local may_call = worst and verdict == 'granted' and #checkpoints == 0 and not copied
  if may_call and worst.takes_messages and not fresh then
    may_call = #untaken(job, h, handoff, knows) == 0
  end
  if may_call then no, _, _, taken = admit_call(job, h, worst, member, at) end
  return {
    verdict, no and 0 or 1, checkpoints, taken or {}, tonumber(began), claims,
    tonumber(asked_ms or 0), copied or {},
  }
end
