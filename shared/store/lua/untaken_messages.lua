-- Return the messages of users that a claimed handoff has not taken.
-- KEYS job.  ARGV: handoff, fence.
-- Returns {'ok', number of all messages of the job, then pairs of id and compressed text} |
-- {'lost'} | {'dropped'}
local job, handoff = KEYS[1], ARGV[1]
local h = job .. ':h:' .. handoff
local f = redis.call('HMGET', h, 'fence', 'state', 'messages')
local why = gone(job_of(job).version, f, ARGV[2])
if why then return { why } end
local found, count = untaken(job, h, handoff, f[3])
local answer = { 'ok', count }
for _, message in ipairs(found) do
  answer[#answer + 1], answer[#answer + 2] = message.id, redis.call('HGET', job .. ':blob', message.digest)
end
return answer
