-- Append a person's answer to a question about the call of a tool. The first answer counts.
-- KEYS job, due.  ARGV: event, version of the question, handoff, statuses of open jobs (JSON
-- array),
-- then pairs of digest and compressed payload.
-- Returns the version of the event | 0 (there is no such job) | -1 (the job has ended, or is
-- cancelled) | -2 (the question is not open)
local job, due = KEYS[1], KEYS[2]
local f = redis.call('HMGET', job, 'status', 'cancelled')
if not f[1] then return 0 end
local may_change = false
for _, allowed in ipairs(cjson.decode(ARGV[4])) do may_change = may_change or allowed == f[1] end
if not may_change or f[2] then return -1 end
if redis.call('HGET', progress_of(job), 'approval:' .. ARGV[2]) ~= CALL_APPROVAL then return -2 end
local at = now_ms()
keep_payloads(job, ARGV, 5)
local version = append(
  job, tonumber(redis.call('HGET', progress_of(job), 'version')), ARGV, 1, 1, at, {}
)
decide_call(job, ARGV[3], ARGV[2], cjson.encode({ 1, ARGV[1] }), at)
redis.call('ZADD', due, 'LT', whole(at + 1000), id_of(job))
return version
