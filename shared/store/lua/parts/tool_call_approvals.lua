-- Part of the scripts about calls of tools that a person approves. Each question is an event of the
-- journal. The job's progress has `calls` (the open questions, each as VERSION:TOOL), and
-- `approval:VERSION` for each of them. The hash of a handoff has `decided:VERSION` (the event of
-- the answer, with a separate signature), `asks` (JSON: the version of the question by the id of
-- its call), `asks_since` while the handoff waits for an answer (Unix ms), and `asked_ms` (time of
-- its earlier waits). An answer names the note and the arguments of a person, so only workers of
-- the agent may read it. The other events of its batch name handoffs of others.

local CALL_APPROVAL = 'tools' -- a value of `ApprovalOf`

-- Store the open questions. The newest question of the job is one of these if no
-- other question is open.
local function put_open_calls(job, open)
  local progress = progress_of(job)
  local newest = redis.call('HGET', progress, 'asked_last')
  local is_open = newest and redis.call('HEXISTS', progress, 'approval:' .. newest) == 1
  set_fields(
    progress,
    {
      calls = table.concat(open, ' '),
      asked_last = #open > 0 and not is_open and string.match(open[#open], '^%d+') or nil,
    }
  )
end

local function open_calls(job)
  local open = {}
  local stored = short(redis.call('HGET', progress_of(job), 'calls')) or ''
  for question in string.gmatch(stored, '%S+') do
    open[#open + 1] = question
  end
  return open
end

-- Remove closed questions from the open ones. `closed`: set of their versions.
local function drop_open_calls(job, closed)
  local left = {}
  for _, open in ipairs(open_calls(job)) do
    if not closed[string.match(open, '^%d+') or ''] then left[#left + 1] = open end
  end
  put_open_calls(job, left)
end

-- Close a question, because it has an answer.
local function close_call(job, version)
  redis.call('HDEL', progress_of(job), 'approval:' .. version)
  drop_open_calls(job, { [version] = true })
end

-- Close all questions of a handoff that has ended. `asks`: field of its hash, or nil. A worker may
-- have written any text. A text without questions stops no end, and a long text keeps Redis for a
-- short time only.
local MAX_ASKS = 1000 -- many more than the calls of a reply
local function close_calls(job, asks)
  local is_json, questions = pcall(cjson.decode, short(asks))
  local closed, count = {}, 0
  for _, version in pairs(is_json and type(questions) == 'table' and questions or {}) do
    count = count + 1
    if count > MAX_ASKS then break end
    local field = type(version) == 'string' and 'approval:' .. version
    if field and redis.call('HDEL', progress_of(job), field) == 1 then closed[version] = true end
  end
  if next(closed) then drop_open_calls(job, closed) end
end

-- Note the answer to a question, and make the handoff due if it waits for an answer. The next sweep
-- finds the handoff. `answer`: see `decided` above. An answer to an unknown handoff is not noted.
local function decide_call(job, handoff, version, answer, at)
  local handoff_hash = handoff_key(job, handoff)
  close_call(job, version)
  local state = redis.call('HGET', handoff_hash, 'state')
  if not state then return end
  redis.call('HSET', handoff_hash, 'decided:' .. version, answer)
  if state == 'issued' and redis.call('HEXISTS', handoff_hash, 'asks_since') == 1 then
    redis.call('HDEL', handoff_hash, 'waits', 'deferred')
    redis.call('HSET', handoff_hash, 'lost', '1')
    redis.call('ZADD', due_of(job, handoff), integer(at), member_of(job, handoff))
  end
end
