-- Count the jobs that match a filter, by status. Reads only, and a bounded part of the list.
-- KEYS jobs.  ARGV: see parts/job_filter.lua.
-- Returns {score to continue from ('' at the end of the list), status and number of each}.
local filter = read_filter()
local entries = redis.call(
  'ZREVRANGEBYSCORE', KEYS[1], ARGV[1], ARGV[2], 'WITHSCORES', 'LIMIT', '0', ARGV[3]
)
local counts, go_on, answer = {}, '', {}
for n = 1, #entries, 2 do
  go_on = '(' .. entries[n + 1]
  local status = matching_status(entries[n], filter)
  if status then counts[status] = (counts[status] or 0) + 1 end
end
if #entries < 2 * tonumber(ARGV[3]) then go_on = '' end
for status, count in pairs(counts) do
  answer[#answer + 1] = status
  answer[#answer + 1] = count
end
return { go_on, answer }
