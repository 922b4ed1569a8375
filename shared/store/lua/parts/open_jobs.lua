-- Part of the scripts that count the open jobs of a tenant. The sorted set `handoff:open:TENANT`
-- has each job of a user that has not ended. A child job is not counted. A defect of the set must
-- not stop a job, so an error of Redis counts as an empty set.

local function is_open(status)
  return status == 'queued' or status == 'running'
end

-- Return the number of open jobs of a tenant. First remove entries of jobs that have ended or that
-- retention has removed. A call checks a few entries, or many if the number reaches `most`. The
-- entries that were checked last are checked again last. A Redis that refuses writes still gives
-- the number.
local function open_jobs_of(tenant, most)
  local FEW, MANY = 10, 1000
  local set = 'handoff:open:' .. tenant
  local count = number_or(redis.pcall('ZCARD', set), 0)
  if count == 0 then return 0 end
  for _, id in ipairs(redis.call('ZRANGE', set, '0', count >= most and MANY - 1 or FEW - 1)) do
    if is_open(redis.pcall('HGET', key_of(id), 'status')) then
      redis.pcall('ZADD', set, integer(now_ms()), id)
    else
      redis.pcall('ZREM', set, id)
      count = count - 1
    end
  end
  return count
end

-- Note in the set of its tenant that a job is open or has ended. A set with entries of expired jobs
-- expires, too.
local function record_openness(tenant, job, status)
  local MORE_MS = 366 * 24 * 3600 * 1000
  local set = 'handoff:open:' .. tenant
  if not is_open(status) then
    redis.pcall('ZREM', set, id_of(job))
  elseif type(redis.pcall('ZADD', set, 'NX', integer(now_ms()), id_of(job))) == 'number' then
    extend_key(set, left_of(job) + MORE_MS)
  end
end
