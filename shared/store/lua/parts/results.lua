-- Part of the scripts that end a handoff. The first writer wins, and its events enter the journal
-- in the same step.
-- Arguments: handoff, fence, keep_ms, silence_ms (time until the sweeper wakes a job whose chord
-- body did not come), result digest, used (JSON or ''), number of events, urgent (1|0), keeps its
-- turns (1|0), evaluation that continues after this end ('' none), the result's status, the calls'
-- share of their bucket (JSON or 'null'), number of further checkpoints to keep, takes messages
-- (1|0),
-- how it shares its run ('': not; 'copy' and the argument of `count_copy`: this result is a copy;
-- 'run' and the proof: others may copy it),
-- then the events, the checkpoints, and pairs of digest and compressed payload.
-- Returns {'ok', open parts of the group (-1: it has no group), version, Unix ms, wake the
-- supervisor before the group is done (1|0)} | {'lost'} | {'dropped'} | {'messages'}: the agent
-- must first take messages of users, and nothing is stored.
local function finish(job, arguments)
  local handoff, fence = arguments[1], arguments[2]
  local h, t = handoff_key(job, handoff), turns_key(job, handoff)
  local known = redis.call(
    'HMGET', h, 'fence', 'state', 'role', 'group', 'counts', 'child', 'r_turns', 'turn_at',
    'messages', 'asks', 'shares'
  )
  local group, counts = known[4], known[5]

  -- Add `more` to the count of each fan-in that needs only some results. Returns whether one of
  -- these fan-ins has enough results to continue. An urgent result is not usable, and is not
  -- counted.
  local function has_enough(more)
    local enough = false
    for fan_in, from in pairs(counts and cjson.decode(counts) or {}) do
      enough = add_to_figure(progress_of(job), 'in:' .. fan_in, more) >= from or enough
    end
    return enough
  end

  if known[2] == 'done' and is_fence(known[1], fence) then
    local ended = redis.call('HMGET', h, 'result', 'end_version', 'finished_at')
    if ended[1] == arguments[5] then -- repeated, because the answer was lost
      local left = group and redis.call('HGET', progress_of(job), 'g:' .. group) or -1
      return {
        'ok', tonumber(left), tonumber(ended[2]), tonumber(ended[3]),
        (arguments[8] == '1' or has_enough(0)) and 1 or 0,
      }
    end
  end
  local from, tally = unpack(redis.call('HMGET', progress_of(job), 'version', 'tally'))
  local why = gone(job_of(job).version, known, fence)
  if why then return { why } end
  if arguments[14] == '1' and not is_cancelled(job) and #untaken(job, h, handoff, known[9]) > 0 then
    return { 'messages' }
  end

  local at = now_ms()
  local id = id_of(job)
  local used = decoded(arguments[6])
  if known[8] and (used or not known[7]) then
    observe(at - tonumber(known[8]), 'turn_duration_seconds', label('role', known[3] or ''))
  end
  if used or known[7] then settle(job, h, used) end
  settle_share(used and used.share, id .. '/' .. handoff, at)
  local FIRST = 16
  local events = tonumber(arguments[7])
  local status = arguments[11]
  local checkpoints = tonumber(arguments[13])
  local first_kept = FIRST + events
  from = tonumber(from)
  if checkpoints > 0 then
    redis.call('RPUSH', t, unpack(arguments, first_kept, first_kept + checkpoints - 1))
  end
  keep_payloads(job, arguments, first_kept + checkpoints)
  local fields = { tally = tally_on(tally, { [status] = 1 }) }
  if status == 'failed' or status == 'needs_input' then
    fields.failed_last = noted(job, 'failed_last', { handoff })
  end
  if status == 'failed' and known[3] then -- for the filter of the list of jobs
    local failed = redis.call('HGET', progress_of(job), 'failed_roles')
    if not has_word(failed, known[3]) then
      fields.failed_roles = (failed and failed .. ' ' or '') .. known[3]
    end
  end
  local version = append(job, from, arguments, FIRST, events, at, fields)
  redis.call(
    'HSET', h, 'state', 'done', 'status', status, 'result', arguments[5], 'finished_at', whole(at),
    'end_version', whole(version)
  )
  redis.call('HDEL', h, 'lease', 'doing', 'turn_at')
  close_calls(job, known[10])
  -- A person who was asked about a call has decided for this job only.
  local proof = not known[10] and string.match(arguments[15], '^run(.*)$')
  if proof then redis.call('HSET', h, 'proof', proof) end
  local copy = string.match(arguments[15], '^copy(.*)$')
  if copy then count_copy(job, known[3] or '', copy, at) end
  if known[11] then leave_run(job, handoff, known[11], proof, at) end
  add_to_metric(
    '1', 'handoffs', label('tenant', job_of(job).tenant), label('role', known[3] or ''), status
  )
  redis.call('DEL', draft_key(job, handoff))
  if arguments[9] == '1' then redis.call('PEXPIRE', t, arguments[3]) else redis.call('DEL', t) end
  local due = due_of(job, handoff)
  redis.call('ZREM', due, id .. '/' .. handoff)
  begin_evaluation(job, arguments[10], at)
  -- Sample for quotes and for the use of slots: end (Unix ms), micro-dollars (null: unknown price),
  -- ms since the first claim, ms of waiting for the provider, turns, their share of the bucket, and
  -- the micro-dollars that its batches saved.
  local MOST_SAMPLES = 200
  local role = known[3]
  if role and not copy then
    local f = redis.call(
      'HMGET', h, 'usd', 'unpriced', 'started_at', 'turns', 'asked_ms', 'batch_saved'
    )
    if known[6] then
      local amounts = amounts_for(h, key_of(known[6]))
      f[1], f[2], f[4], f[6] = amounts.usd, amounts.unpriced, amounts.turns, amounts.batch_saved
    end
    local sample = string.format(
      '{"at": %d, "usd": %s, "ms": %d, "waited_ms": %d, "turns": %d, "bucket": %s, "saved": %s}',
      at, f[2] and 'null' or (f[1] or '0'), at - tonumber(f[3] or at) - tonumber(f[5] or 0),
      waited(h, at), tonumber(f[4] or 0), arguments[12], f[6] or '0'
    )
    keep_newest('handoff:history:' .. role, sample, MOST_SAMPLES, PAST_KEPT_MS)
  end
  local left = -1
  local wakes = arguments[8] == '1' or has_enough(1)
  if group then left = add_to_figure(progress_of(job), 'g:' .. group, '-1') end
  if group or known[6] then
    -- The last part of a chord starts its body, and a result that wakes makes its sender wake the
    -- supervisor. If the message is lost, the sweeper wakes the job after silence_ms.
    if left <= 0 or wakes then redis.call('ZADD', due, 'LT', at + tonumber(arguments[4]), id) end
  end
  return { 'ok', left, version, at, wakes and 1 or 0 }
end
