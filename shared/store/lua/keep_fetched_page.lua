-- Store a page that was fetched for an open job: its text as a payload, and an entry in the list of
-- the pages.
-- KEYS job.  ARGV: entry, digest of the text, compressed text.
-- Returns 1 | 0 (the job has ended, or is gone)
local job = KEYS[1]
if not is_open(redis.call('HGET', job, 'status')) then return 0 end
add_payloads(job, ARGV, 2)
redis.call('RPUSH', job .. ':fetched', ARGV[1])
return 1
