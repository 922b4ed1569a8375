-- Part of the scripts that begin or end an evaluation of a job. The field `evaluations` of the
-- job's hash has an entry ID:MS for each evaluation that began after the last one that ended, in
-- order. MS is the time of its last heartbeat (Unix ms). `job_evaluation_lease.py` describes the
-- rules.

-- Return the noted evaluations, from the text of the field or false.
local function evaluations_of(text)
  local evaluations = {}
  if not text then return evaluations end
  for evaluation, heartbeat_at in string.gmatch(text, '(%x+):(%d+)') do
    evaluations[#evaluations + 1] = { name = evaluation, heartbeat_at = tonumber(heartbeat_at) }
  end
  return evaluations
end

local function evaluations_text(evaluations)
  local words = {}
  for _, evaluation in ipairs(evaluations) do
    words[#words + 1] = string.format('%s:%d', evaluation.name, evaluation.heartbeat_at)
  end
  return table.concat(words, ' ')
end

local function is_among(evaluations, name)
  for _, evaluation in ipairs(evaluations) do
    if evaluation.name == name then return true end
  end
  return false
end

-- Note the evaluation. A repeated note changes nothing, and the name '' notes nothing.
-- `evaluations`: the noted evaluations if the caller has read them.
local function begin_evaluation(job, name, at, evaluations)
  if name == '' then return end
  evaluations = evaluations or evaluations_of(redis.call('HGET', job, 'evaluations'))
  if is_among(evaluations, name) then return end
  evaluations[#evaluations + 1] = { name = name, heartbeat_at = at }
  redis.call('HSET', job, 'evaluations', evaluations_text(evaluations))
end

-- Store a heartbeat of a noted evaluation. An evaluation without a note gets none: while the
-- supervisor runs a role's handoff itself, the claim replaces the note.
local function store_heartbeat(job, name, at)
  local evaluations = evaluations_of(redis.call('HGET', job, 'evaluations'))
  if not is_among(evaluations, name) then return end
  for _, evaluation in ipairs(evaluations) do
    if evaluation.name == name then evaluation.heartbeat_at = at end
  end
  redis.call('HSET', job, 'evaluations', evaluations_text(evaluations))
end

-- Return the field without this evaluation and all earlier ones; '' if none is left; nil if the
-- evaluation is not noted, and the field stays.
local function evaluations_without(name, text)
  if name == '' then return nil end
  local evaluations = evaluations_of(text)
  if not is_among(evaluations, name) then return nil end
  while table.remove(evaluations, 1).name ~= name do end
  return evaluations_text(evaluations)
end

-- Remove the notes of this evaluation and of all earlier ones.
local function end_evaluation(job, name, text)
  set_fields(job, { evaluations = evaluations_without(name, text) })
end
