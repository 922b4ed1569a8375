-- Part of the scripts that deliver messages of users to running agents. The job's hash has their
-- number in the field `messages`, and the n-th message in the field `message:N`, as JSON: its id,
-- the digest of its text, its step (absent: the message is for all agents), the version and the
-- time (Unix ms) of its event. The job's progress has in the field `taken:N` the handoffs that took
-- the message while they ran, as JSON: pairs of id and turn.

local function message_at(job, n)
  return cjson.decode(redis.call('HGET', job, 'message:' .. integer(n)))
end

-- Return whether a handoff is of a role: it has no chord, and no child job does it.
local function is_role_handoff(handoff_hash)
  local group, child = unpack(redis.call('HMGET', handoff_hash, 'group', 'child'))
  return not group and not child
end

-- Return the messages that this handoff has not taken, and the number of all messages of the job.
-- A message to one step is for the agents of that step and for the roles. A handoff knows the
-- messages before its issue: its task names them. `knows` is the number of messages that it knows
-- or has taken; a worker may have written any number. Without a message for it, `knows` grows at
-- once.
local function untaken(job, handoff_hash, handoff, knows)
  local count, messages = tonumber(job_of(job).messages or 0), {}
  local known = math.max(0, number_or(knows, 0))
  if known >= count then return messages, count end
  local step = string.match(handoff, '^(.*)%.%d+$')
  for n = known + 1, count do
    local message = message_at(job, n)
    message.place = n
    if not message.step or message.step == step or is_role_handoff(handoff_hash) then
      messages[#messages + 1] = message
    end
  end
  if #messages == 0 then redis.call('HSET', handoff_hash, 'messages', integer(count)) end
  return messages, count
end

-- Note in the job's progress that a handoff took the first of these messages, up to the place
-- `last`.
local MAX_TAKERS = 50 -- of a message; the journal has all
local function record_taken(job, handoff, messages, last, turn)
  for _, message in ipairs(messages) do
    if message.place > last then return end -- it came after the agent had read the others
    local field = 'taken:' .. integer(message.place)
    local stored = short(redis.call('HGET', progress_of(job), field))
    local is_json, taken = pcall(cjson.decode, stored)
    if not is_json or type(taken) ~= 'table' then taken = {} end
    if #taken < MAX_TAKERS then taken[#taken + 1] = { handoff, turn } end
    redis.call('HSET', progress_of(job), field, cjson.encode(taken))
  end
end

-- Return the newest messages of a job, at most `most`, the oldest first: each message as JSON, then
-- its takers as JSON ('' none).
local function newest_messages(job, most)
  local count, messages = tonumber(redis.call('HGET', job, 'messages') or 0), {}
  for n = math.max(1, count - most + 1), count do
    messages[#messages + 1] = redis.call('HGET', job, 'message:' .. integer(n))
    local taken = redis.call('HGET', progress_of(job), 'taken:' .. integer(n))
    messages[#messages + 1] = short(taken) or ''
  end
  return messages
end
