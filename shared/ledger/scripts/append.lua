-- Facts that commute with everything (a cancel, a retry asked for): appended whatever the version is.
-- KEYS job, due.  ARGV event, fields (JSON object).  Returns the version, or 0: no such job.
local job, due = KEYS[1], KEYS[2]
if redis.call('EXISTS', job) == 0 then return 0 end
local at = now_ms()
append(job, ARGV[1], at)
local version = touch(job, at)
for name, value in pairs(cjson.decode(ARGV[2])) do
  if value == '' then redis.call('HDEL', job, name) else redis.call('HSET', job, name, value) end
end
redis.call('ZADD', due, at + 1000, string.match(job, '{(.-)}'))
return version
