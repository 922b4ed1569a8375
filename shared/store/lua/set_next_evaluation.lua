-- Set the time at which the sweeper must evaluate a job again. If an event came since the decision,
-- the sweeper evaluates the job in a second, or earlier at the time of that event.
-- KEYS job, due.  ARGV: version of the decision, due (Unix ms | -1 never), evaluation that ends
-- here ('' none).
-- Returns 1 | 0 (an event came since)
local job, due = KEYS[1], KEYS[2]
local id = id_of(job)
local status, evaluations = unpack(redis.call('HMGET', job, 'status', 'evaluations'))
record_evaluated(id, status)
local is_current = version_of(job) == tonumber(ARGV[1])
set_fields(job, {
  evaluations = evaluations_without(ARGV[3], evaluations),
  seen = status and is_current and ARGV[1] or nil,
})
if not is_current then
  -- a sweep may have replaced the time that the new event has set
  make_due_soon(due, job, now_ms())
  return 0
end
if tonumber(ARGV[2]) >= 0 then
  redis.call('ZADD', due, ARGV[2], id)
else
  redis.call('ZREM', due, id)
end
return 1
