-- Part of the scripts that deliver messages of users to running agents. The job's hash has their
-- number in the field `messages`, and the n-th message in the field `message:N`, as JSON: its id,
-- the digest of its text, its step (absent: the message is for all agents), and the version of its
-- event.

local function message_at(job, n)
  return cjson.decode(redis.call('HGET', job, 'message:' .. whole(n)))
end

-- Return the messages that this handoff has not taken, and the number of all messages of the job.
-- A handoff knows the messages before its issue: its task names them. `knows` is the number of
-- messages that it knows or has taken. Without a message for it, `knows` grows at once.
local function untaken(job, h, handoff, knows)
  local count, known, found = tonumber(job_of(job).messages or 0), tonumber(knows or 0), {}
  if known >= count then return found, count end
  local step = string.match(handoff, '^(.*)%.%d+$')
  for n = known + 1, count do
    local message = message_at(job, n)
    if not message.step or message.step == step then found[#found + 1] = message end
  end
  if #found == 0 then redis.call('HSET', h, 'messages', whole(count)) end
  return found, count
end
