-- Append an event that commutes with all other events, at any version.
-- KEYS job, due.  ARGV: event, fields of the job and of its progress (JSON object), statuses (JSON
-- array; if not empty, the job must have one of them), then pairs of digest and compressed payload.
-- Returns the new version; 0: there is no such job; -1: the job has none of the statuses.
local job, due = KEYS[1], KEYS[2]
local status = redis.call('HGET', job, 'status')
if not status then return 0 end
local statuses = cjson.decode(ARGV[3])
if #statuses > 0 and not has_value(statuses, status) then return -1 end
local at = now_ms()
keep_payloads(job, ARGV, 4)
local version = append_trusted(job, ARGV, 1, 1, at, cjson.decode(ARGV[2]))
redis.call('ZADD', due, at + 1000, id_of(job))
return version
