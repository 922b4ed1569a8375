-- Facts that commute with everything: appended whatever the version is.
-- KEYS job, due.  ARGV event, fields (JSON object), statuses (JSON array; where there are any, the job must have one of them),
-- then pairs of digest and compressed payload.
-- Returns the version; 0: there is no such job; -1: its status is another.
local job, due = KEYS[1], KEYS[2]
local status, last = unpack(redis.call('HMGET', job, 'status', 'version'))
if not status then return 0 end
local statuses = cjson.decode(ARGV[3])
local fits = #statuses == 0
for _, one in ipairs(statuses) do fits = fits or one == status end
if not fits then return -1 end
local at = now_ms()
for i = 4, #ARGV, 2 do redis.call('HSETNX', job .. ':blob', ARGV[i], ARGV[i + 1]) end
local version = append(job, tonumber(last or 0), { ARGV[1] }, at, cjson.decode(ARGV[2]))
redis.call('ZADD', due, at + 1000, string.match(job, '{(.-)}'))
return version
