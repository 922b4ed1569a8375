-- Append a person's answer to a question about the call of a tool. The first answer counts.
-- KEYS job, due.  ARGV: event, version of the question, handoff, statuses of open jobs (JSON
-- array), then pairs of digest and compressed payload.
-- Returns the version of the event | 0 (there is no such job) | -1 (the job has ended, or is
-- cancelled) | -2 (the question is not open)
local job, due = KEYS[1], KEYS[2]
local event, question, handoff = ARGV[1], ARGV[2], ARGV[3]
local status, cancelled = unpack(redis.call('HMGET', job, 'status', 'cancelled'))
if not status then return 0 end
if cancelled or not has_value(cjson.decode(ARGV[4]), status) then return -1 end
-- Workers write the progress of all jobs, so the open questions there are for lists only. Workers
-- of other agents write neither the hash of the job nor the hash of the handoff.
local handoff_hash = handoff_key(job, handoff)
local is_decided = redis.call('HEXISTS', handoff_hash, 'decided:' .. question) == 1
local state = redis.call('HGET', handoff_hash, 'state')
if is_decided or not state or state == 'done' or state == 'dropped' then return -2 end
local at = now_ms()
keep_payloads(job, ARGV, 5)
local version = append_trusted(job, ARGV, 1, 1, at, {})
decide_call(job, handoff, question, event, at)
make_due_soon(due, job, at)
return version
