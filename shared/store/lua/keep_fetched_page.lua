-- Note a page that was fetched for an open job. The pages stay as long as their job: here for the
-- time that the job has left, and each later decision extends both.
-- KEYS job.  ARGV: name, entry.  Returns 1 | 0 (the job has ended, or is gone)
local job = KEYS[1]
local pages = job .. ':fetched'
if not is_open(redis.call('HGET', job, 'status')) then return 0 end
redis.call('HSET', pages, ARGV[1], ARGV[2])
extend_key(pages, left_of(job))
return 1
