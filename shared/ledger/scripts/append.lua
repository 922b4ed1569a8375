-- Facts that commute with everything: appended whatever the version is.
-- KEYS job, due.  ARGV event, fields (JSON object), and statuses: where there are any, the job must have one of them.
-- Returns the version; 0: there is no such job; -1: its status is another.
local job, due = KEYS[1], KEYS[2]
local status = redis.call('HGET', job, 'status')
if not status then return 0 end
local fits = #ARGV == 2
for i = 3, #ARGV do fits = fits or ARGV[i] == status end
if not fits then return -1 end
local at = now_ms()
append(job, ARGV[1], at)
local version = touch(job, at)
put(job, cjson.decode(ARGV[2]))
redis.call('ZADD', due, at + 1000, string.match(job, '{(.-)}'))
return version
