-- Begin an evaluation of a job, and read the journal after a version; or end an evaluation that no
-- other script ends; or store the heartbeat of a long evaluation.
-- KEYS job, due.  ARGV: `BeginEvaluationArguments` in `positional_arguments.py`. The actions 'end'
-- and 'heartbeat' have only the first two.
-- Returns {verdict, entries, ends, version of the journal}: for each entry that ends a handoff, its
-- place among the entries (from 1), and the fence and the version of the end in the handoff's hash.
-- Verdicts: ok | frozen (too many evaluations never ended) | crowded (as many evaluations as may
-- run have not ended, and the job is due again soon). Only `ok` has entries: see `entries_after`.
local job, due = KEYS[1], KEYS[2]
local name, action, version, most_events, most_evaluations, frozen_ms, together_ms, lease_ms,
  wants_ends, most_bytes = unpack(ARGV, 1, 10)
if action == 'end' then
  end_evaluation(job, name, redis.call('HGET', job, 'evaluations'))
  return { 'ok', {} }
end
if action == 'heartbeat' then
  store_heartbeat(job, name, now_ms())
  return { 'ok', {} }
end
local most, frozen = tonumber(most_evaluations), tonumber(frozen_ms)
local together, lease = tonumber(together_ms), tonumber(lease_ms)
local at = now_ms()

-- Return the number of groups of times. A time within `within` ms after the first time of a group
-- belongs to it. `times`: in order.
local function count_groups(times, within)
  local count, since = 0, nil
  for _, time in ipairs(times) do
    if not since or time - since >= within then count, since = count + 1, time end
  end
  return count
end

local function verdict_of(evaluations)
  record_call(at, lease)
  local open, given_up = {}, {}
  for _, evaluation in ipairs(evaluations) do
    local is_open = lease_end(evaluation.heartbeat_at + frozen) > at
    local times = is_open and open or given_up
    times[#times + 1] = evaluation.heartbeat_at
  end
  table.sort(open)
  table.sort(given_up)
  local failed = count_groups(given_up, frozen)
  if failed >= most then return #open > 0 and 'crowded' or 'frozen' end
  if failed > 0 then return #open > 0 and 'crowded' or 'ok' end
  table.insert(open, at)
  return count_groups(open, together) > most and 'crowded' or 'ok'
end

local status, text = unpack(redis.call('HMGET', job, 'status', 'evaluations'))
if status then
  local evaluations = evaluations_of(text)
  local verdict = 'ok'
  if #evaluations > 0 and not is_among(evaluations, name) then verdict = verdict_of(evaluations) end
  if verdict == 'crowded' then
    local id = id_of(job)
    record_evaluated(id, status)
    redis.call('ZADD', due, at + together, id)
    return { verdict, {} }
  end
  begin_evaluation(job, name, at, evaluations)
  if verdict == 'frozen' then return { verdict, {} } end
end
local entries = entries_after(job, tonumber(version), tonumber(most_events), tonumber(most_bytes))
local ends = {}
if wants_ends == '1' then
  for place, entry in ipairs(entries) do
    local FINISHED = '^{"type":"handoff_finished","handoff_id":"([^"]+)"'
    local handoff = string.match(entry_event(entry), FINISHED)
    if handoff then
      local fence, version = unpack(
        redis.call('HMGET', handoff_key(job, handoff), 'fence', 'end_version')
      )
      table.insert(ends, { place, short(fence) or false, short(version) or false })
    end
  end
end
return { 'ok', entries, ends, version_of(job) }
