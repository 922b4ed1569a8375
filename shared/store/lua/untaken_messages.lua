-- Return the messages of users that a claimed handoff has not taken.
-- KEYS job.  ARGV: handoff, fence.
-- Returns {'ok', number of all messages of the job, then id, digest, stored text and step ('': all)
-- of each} | {'lost'} | {'dropped'}
local job, handoff = KEYS[1], ARGV[1]
local handoff_hash = handoff_key(job, handoff)
local kept_fence, state, known = unpack(
  redis.call('HMGET', handoff_hash, 'fence', 'state', 'messages')
)
local refusal = fence_refusal(job_of(job).version, kept_fence, state, ARGV[2])
if refusal then return { refusal } end
local messages, count = untaken(job, handoff_hash, handoff, known)
local answer = { 'ok', count }
for _, message in ipairs(messages) do
  local text = short_payload(job, message.digest) or ''
  for _, part in ipairs({ message.id, message.digest, text, message.step or '' }) do
    answer[#answer + 1] = part
  end
end
return answer
