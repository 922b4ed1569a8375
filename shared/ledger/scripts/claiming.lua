-- In front of the scripts that claim: the exclusive right to run one handoff, for one lease.
-- order: handoff, digest of the message, worker, lease_ms, max_claims, keep_ms, deadline (ms | 0), worst case of the first call (JSON or ''),
-- fence: a word that only this claim knows. Said again because its answer was lost, it is the same claim.
-- Returns {verdict, reserved (1|0), checkpoints, what `admit` says was taken, when it was first claimed (Unix ms)}; verdict: granted |
-- exhausted | parked | paused | busy | duplicate | cancelled | unknown, the last six with the first three of these alone
local function claim(job, due, order)
  local handoff, digest, worker = order[1], order[2], order[3]
  local lease, max_claims, keep, worst = tonumber(order[4]), tonumber(order[5]), keep_from_now(order[6], order[7]), decoded(order[8])
  local h, t = job .. ':h:' .. handoff, job .. ':t:' .. handoff
  local id = string.match(job, '{(.-)}')
  local at = now_ms()

  local f = redis.call('HMGET', h, 'state', 'digest', 'lease', 'claims', 'queue', 'fence', 'parked', 'role', 'started_at')
  if not f[1] or f[2] ~= digest or not job_of(job).version then return { 'unknown', 0, {} } end
  if f[1] == 'done' or f[1] == 'dropped' then return { 'duplicate', 0, {} } end
  if is_cancelled(job) then return { 'cancelled', 0, {} } end
  local fence, is_again = order[9], f[1] == 'running' and f[6] == order[9]
  local end_of = hear(at, lease)
  if f[1] == 'running' and not is_again and end_of(tonumber(f[3])) > at then return { 'busy', 0, {} } end
  if f[7] and tonumber(f[7]) > at then return { 'parked', 0, {} } end -- a second copy of its message

  local claims = tonumber(f[4] or 0)
  if is_again then -- its first call has not been made: nothing of it is in the air
    unreserve(job, h)
    claims = claims - 1
  else
    settle(job, h, nil)
  end

  local paused = if_paused(f[8])
  if paused then
    redis.call('HSET', h, 'claims', claims)
    redis.call('HDEL', h, 'fence')
    hold(job, due, handoff, paused)
    return { 'paused', 0, {} }
  end

  local member = id .. '/' .. handoff
  if f[5] then forget(f[5], member) end
  local verdict = 'granted'
  if claims >= max_claims then verdict = 'exhausted' end
  local began = tonumber(f[9] or at)
  redis.call(
    'HSET', h, 'state', 'running', 'fence', fence, 'worker', worker, 'lease', at + lease, 'claims', claims + 1, 'beat', at, 'started_at', began
  )
  redis.call('HDEL', h, 'lost', 'held', 'unread', 'parked', 'lane')
  stay(job, h, keep)
  redis.call('ZADD', due, at + lease, member)
  local checkpoints = redis.call('LRANGE', t, 0, -1)
  if #checkpoints > 0 then redis.call('PEXPIRE', t, keep) end
  local no, _, _, taken = 'not asked', nil, nil, nil
  if worst and verdict == 'granted' and #checkpoints == 0 then no, _, _, taken = let_go(job, h, worst, member, at) end
  return { verdict, no and 0 or 1, checkpoints, taken or {}, began }
end
