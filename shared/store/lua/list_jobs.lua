-- List the jobs that match a filter, the newest first. Reads only, and a bounded part of the list.
-- KEYS jobs.  ARGV: see parts/job_filter.lua.
-- Returns {score to continue from ('' at the end of the list), matching jobs}. Jobs that retention
-- has removed do not match.
local filter = read_filter()
local entries = redis.call(
  'ZREVRANGEBYSCORE', KEYS[1], ARGV[1], ARGV[2], 'WITHSCORES', 'LIMIT', '0', ARGV[3]
)
local most, ids, go_on = tonumber(ARGV[4]), {}, ''
for n = 1, #entries, 2 do
  local id = entries[n]
  go_on = '(' .. entries[n + 1]
  if matching_status(id, filter) then ids[#ids + 1] = id end
  if #ids == most then return { go_on, ids } end
end
if #entries < 2 * tonumber(ARGV[3]) then go_on = '' end
return { go_on, ids }
