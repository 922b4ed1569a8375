-- Count jobs of users that have not ended as open, unless they are counted already.
-- KEYS jobs.  ARGV: the tenant of each job.
for n, job in ipairs(KEYS) do
  local status = redis.call('HGET', job, 'status')
  if is_open(status) then note_openness(ARGV[n], job, status) end
end
