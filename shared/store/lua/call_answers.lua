-- Return the answers to the questions about calls of a claimed handoff.
-- KEYS job.  ARGV: handoff, fence.
-- Returns {'ok', then for each answer: id of the call, event, compressed note (''), compressed
-- arguments ('')} | {'lost'} | {'dropped'}
local job, h = KEYS[1], KEYS[1] .. ':h:' .. ARGV[1]
local f = redis.call('HMGET', h, 'fence', 'state', 'asks')
local why = gone(job_of(job).version, f, ARGV[2])
if why then return { why } end
local answer = { 'ok' }
local function payload(ref)
  return type(ref) == 'table' and redis.call('HGET', job .. ':blob', ref.digest) or ''
end
for call, version in pairs(decoded(f[3] or '') or {}) do
  local decided = redis.call('HGET', job, 'decided:' .. version)
  if decided then
    local text = redis.call('XRANGE', job .. ':log', decided .. '-0', decided .. '-0')[1][2][2]
    local event = cjson.decode(text)
    for _, value in ipairs({ call, text, payload(event.note), payload(event.arguments) }) do answer[#answer + 1] = value end
  end
end
return answer
