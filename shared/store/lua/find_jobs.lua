-- Find jobs and their child jobs by the beginning of their id. Reads only, and a bounded part of
-- the list.
-- KEYS jobs.  ARGV: score to start from ('+inf', or '(' and a score to start below), most jobs to
-- read, prefix.
-- Returns {score to continue from ('' at the end of the list), ids, the newest first}. Jobs that
-- retention has removed do not match. A job's key may have another type, written by another
-- program.
local jobs, most, prefix = KEYS[1], tonumber(ARGV[2]), ARGV[3]
local entries = redis.call(
  'ZREVRANGEBYSCORE', jobs, ARGV[1], '-inf', 'WITHSCORES', 'LIMIT', '0', ARGV[2]
)
local ids, left = {}, {}
for n = #entries - 1, 1, -2 do left[#left + 1] = entries[n] end
while #left > 0 do
  local id = table.remove(left)
  local fields = redis.pcall('HMGET', key_of(id), 'status', 'children')
  local status, children = unpack(fields)
  local is_there = status or fields.err
  if is_there and string.sub(id, 1, #prefix) == prefix then ids[#ids + 1] = id end
  for child in string.gmatch(children or '', '%S+') do left[#left + 1] = child end
end
return { #entries == 2 * most and '(' .. entries[#entries] or '', ids }
