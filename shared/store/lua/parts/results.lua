-- Part of the scripts that end a handoff. The first writer wins, and its events enter the journal
-- in the same step.

-- Count a result for each fan-in that needs only some results, and return whether one of these
-- fan-ins has enough results to continue. `counts`: JSON, the results that each fan-in needs, or
-- nil; `more`: 1 to count a result, 0 to only look.
local function has_enough(job, counts, more)
  local enough = false
  for fan_in, needed in pairs(short(counts) and cjson.decode(counts) or {}) do
    local results = add_to_figure(progress_of(job), 'in:' .. fan_in, more)
    enough = enough or results >= needed
  end
  return enough
end

-- Return the fields of the job's progress that change with a result: its tally, its newest failed
-- handoffs, and its failed agents, which the filter of the list of jobs reads.
local function progress_after(job, handoff, agent, status)
  local fields = { tally = more_tally(job, { [status] = 1 }) }
  if status == 'failed' or status == 'needs_input' then
    fields.failed_last = newest_ids(job, 'failed_last', { handoff })
  end
  if status == 'failed' and agent then
    local failed = short(redis.call('HGET', progress_of(job), 'failed_agents'))
    if not has_word(failed, agent) then
      fields.failed_agents = (failed and failed .. ' ' or '') .. agent
    end
  end
  return fields
end

-- Add a sample to the history of an agent, for quotes and for the use of slots: end (Unix ms),
-- micro-dollars (null: unknown price), ms since the first claim, ms of waiting for the provider,
-- turns, tokens that count for the bucket (`bucket_use`: JSON), the micro-dollars that its batches
-- saved, and those of the provider's tools. `child`: id of the child job that did the handoff, or
-- nil.
local MAX_SAMPLES = 200
local function add_sample(handoff_hash, agent, child, bucket_use, at)
  local usd, unpriced, started_at, turns, asked_ms, batch_saved, server_tools = unpack(redis.call(
    'HMGET', handoff_hash, 'usd', 'unpriced', 'started_at', 'turns', 'asked_ms', 'batch_saved',
    'server_tools'
  ))
  if child then
    local amounts = amounts_for(handoff_hash, key_of(child))
    usd, unpriced, turns = amounts.usd, amounts.unpriced, amounts.turns
    batch_saved, server_tools = amounts.batch_saved, amounts.server_tools
  end
  local cost = unpriced and 'null' or usd or '0'
  local lasted_ms = at - tonumber(started_at or at) - tonumber(asked_ms or 0)
  local waited_ms = waited(handoff_hash, at)
  local sample = string.format(
    '{"at": %d, "usd": %s, "ms": %d, "waited_ms": %d, "turns": %d, "bucket": %s, "saved": %s, '
      .. '"server_tools": %s}',
    at, cost, lasted_ms, waited_ms, tonumber(turns or 0), bucket_use, batch_saved or '0',
    server_tools or '0'
  )
  keep_newest('handoff:history:' .. agent, sample, MAX_SAMPLES, PAST_KEPT_MS)
end

-- End a handoff with a result.
-- Arguments: `FinishArguments` in `positional_arguments.py`, and the lists that follow them.
-- Returns {'ok', open parts of the group (-1: it has no group), version, Unix ms, wake the
-- supervisor before the group is done (1|0)} | {'lost'} | {'dropped'} | {'messages'}: the agent
-- must first take messages of users, and nothing is stored.
local function finish(job, arguments)
  local FIRST = 16 -- position of the first event
  local handoff, fence, keep_ms, silence_ms, digest, used_json, events, urgent, keeps_turns,
    evaluation, status, bucket_use, checkpoints, takes_messages, sharing = unpack(
      arguments, 1, FIRST - 1
    )
  local handoff_hash, turns_list = handoff_key(job, handoff), turns_key(job, handoff)
  local fields = redis.call(
    'HMGET', handoff_hash, 'fence', 'state', 'agent', 'group', 'counts', 'child', 'r_turns',
    'turn_at', 'messages', 'asks', 'shares', 'r_batch', 'batch'
  )
  local kept_fence, state, agent, group, counts, child = unpack(fields, 1, 6)
  local reserved_turns, turn_at, messages, asks, run, r_batch, batch = unpack(fields, 7, 13)
  local is_urgent = urgent == '1'
  if state == 'done' and is_fence(kept_fence, fence) then
    local result, end_version, finished_at = unpack(
      redis.call('HMGET', handoff_hash, 'result', 'end_version', 'finished_at')
    )
    if result == digest then -- repeated, because the answer was lost
      local left = group and redis.call('HGET', progress_of(job), 'g:' .. group) or -1
      local wakes = is_urgent or has_enough(job, counts, 0)
      return {
        'ok', tonumber(left), tonumber(end_version), tonumber(finished_at), wakes and 1 or 0,
      }
    end
  end
  local refusal = fence_refusal(job_of(job).version, kept_fence, state, fence)
  if refusal then return { refusal } end
  local may_wait = takes_messages == '1' and not is_cancelled(job)
  if may_wait and #untaken(job, handoff_hash, handoff, messages) > 0 then return { 'messages' } end

  local at = now_ms()
  local id = id_of(job)
  local used = from_json(used_json)
  if turn_at and (used or not reserved_turns) then
    observe(at - tonumber(turn_at), 'turn_duration_seconds', label('agent', agent or ''))
  end
  -- The reservation of a call in a batch stays: the next sweep notes the batch.
  local is_in_batch = not used and r_batch and batch
  if used or reserved_turns and not is_in_batch then settle(job, handoff_hash, used) end
  settle_share(used and used.share, id .. '/' .. handoff, at)
  events = tonumber(events)
  checkpoints = tonumber(checkpoints)
  local first_checkpoint = FIRST + events
  local first_payload = first_checkpoint + checkpoints
  if checkpoints > 0 then
    redis.call('RPUSH', turns_list, unpack(arguments, first_checkpoint, first_payload - 1))
  end
  -- Only supervisors end the handoffs of their own roles, and may replace a payload that a worker
  -- has stored in advance.
  local store_payloads = OWN_ROLES[agent] and keep_payloads or add_payloads
  store_payloads(job, arguments, first_payload)
  local progress = progress_after(job, handoff, agent, status)
  local version = append(job, arguments, FIRST, events, at, progress)
  redis.call(
    'HSET', handoff_hash, 'state', 'done', 'status', status, 'result', digest,
    'finished_at', integer(at), 'end_version', integer(version)
  )
  redis.call('HDEL', handoff_hash, 'lease', 'doing', 'turn_at')
  close_calls(job, asks)
  -- A person who was asked about a call has decided for this job only.
  local proof = not asks and string.match(sharing, '^run(.*)$')
  if proof then redis.call('HSET', handoff_hash, 'proof', proof) end
  local copy = string.match(sharing, '^copy(.*)$')
  if copy then count_copy(job, agent or '', copy, at) end
  if run then leave_run(job, handoff, run, proof, at) end
  add_to_metric(
    '1', 'handoffs', label('tenant', job_of(job).tenant), label('agent', agent or ''), status
  )
  redis.call('DEL', draft_key(job, handoff))
  if keeps_turns == '1' then
    redis.call('PEXPIRE', turns_list, keep_ms)
  else
    redis.call('DEL', turns_list)
  end
  local due = due_of(job, handoff)
  if is_in_batch then
    redis.call('ZADD', due, integer(at), id .. '/' .. handoff)
  else
    redis.call('ZREM', due, id .. '/' .. handoff)
  end
  begin_evaluation(job, evaluation, at)
  if agent and not copy then add_sample(handoff_hash, agent, child, bucket_use, at) end
  -- An urgent result is not usable, and no fan-in counts it.
  local wakes = is_urgent or has_enough(job, counts, 1)
  local left = -1
  if group then left = add_to_figure(progress_of(job), 'g:' .. group, '-1') end
  -- The last part of a chord starts its body, and a result that wakes makes its sender wake the
  -- supervisor. If the message is lost, the sweeper wakes the job after silence_ms. A worker may
  -- have written any number of parts, so the sweeper wakes the job after other parts, too.
  local PARTS_MS = 120 * 1000
  if group or child then
    local wait_ms = (left <= 0 or wakes) and tonumber(silence_ms) or PARTS_MS
    redis.call('ZADD', due, 'LT', integer(at + wait_ms), id)
  end
  return { 'ok', left, version, at, wakes and 1 or 0 }
end
