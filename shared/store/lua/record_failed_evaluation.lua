-- Record a failed evaluation. The delay until the next evaluation doubles with each failure, from 2
-- s on. A new event in the journal starts the count again.
-- KEYS job, due.  ARGV: most ms until the next evaluation, evaluation that ends here ('' none).
-- Returns the failures in a row; 0: there is no such job
local job, due = KEYS[1], KEYS[2]
local id = id_of(job)
local failures, failed_at, status, evaluations = unpack(
  redis.call('HMGET', job, 'failures', 'failed_at', 'status', 'evaluations')
)
local version = integer(version_of(job))
record_evaluated(id, status)
end_evaluation(job, ARGV[2], evaluations)
if not status then
  redis.call('ZREM', due, id)
  return 0
end
local times = failed_at == version and tonumber(failures) + 1 or 1
redis.call('HSET', job, 'failures', times, 'failed_at', version)
redis.call('ZADD', due, now_ms() + math.min(1000 * 2 ^ times, tonumber(ARGV[1])), id)
return times
