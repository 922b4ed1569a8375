-- When the sweeper must look at a job again, unless something has happened since: then what has happened says when.
-- KEYS job, due.  ARGV version that this was decided on, due (ms | -1 never), the look that ends here ('' none).
-- Returns 1 | 0
local job, due = KEYS[1], KEYS[2]
local id = id_of(job)
local version, status, looks = unpack(redis.call('HMGET', job, 'version', 'status', 'looks'))
looked_at(id, status)
end_look(job, ARGV[3], looks)
if tonumber(version or 0) ~= tonumber(ARGV[1]) then
  redis.call('ZADD', due, 'NX', now_ms() + 1000, id) -- what has happened may count on a time that the sweep has used up
  return 0
end
if tonumber(ARGV[2]) >= 0 then redis.call('ZADD', due, ARGV[2], id) else redis.call('ZREM', due, id) end
return 1
