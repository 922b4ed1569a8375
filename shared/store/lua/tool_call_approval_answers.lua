-- Return the answers to the questions about calls of a claimed handoff. They come from the hash of
-- the handoff, because no worker may read the journal.
-- KEYS job.  ARGV: handoff, fence.
-- Returns {'ok', then for each answer: id of the call, `decided` (see
-- `parts/tool_call_approvals.lua`), compressed note (''), compressed arguments ('')} | {'lost'} |
-- {'dropped'}
local job, handoff_hash = KEYS[1], handoff_key(KEYS[1], ARGV[1])
local kept_fence, state, asks_json = unpack(
  redis.call('HMGET', handoff_hash, 'fence', 'state', 'asks')
)
local refusal = fence_refusal(job_of(job).version, kept_fence, state, ARGV[2])
if refusal then return { refusal } end
local answer = { 'ok' }
local function payload(ref)
  return type(ref) == 'table' and short_payload(job, ref.digest) or ''
end
for call, version in pairs(from_json(asks_json or '') or {}) do
  local decided = redis.call('HGET', handoff_hash, 'decided:' .. version)
  if decided then
    local event = from_json(decided)
    for _, value in ipairs({ call, decided, payload(event.note), payload(event.arguments) }) do
      answer[#answer + 1] = value
    end
  end
end
return answer
