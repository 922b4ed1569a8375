-- Jobs of the list, and their child jobs, with an id that begins with a prefix. Reads only, and a bounded part of the list.
-- KEYS jobs.  ARGV the score to begin below ('+inf', or '(' and a score), most jobs of the list to look at, prefix.
-- Returns {where to go on ('' at the end of the list), ids, the newest first}. A job that retention has removed does not match.
local jobs, most, prefix = KEYS[1], tonumber(ARGV[2]), ARGV[3]
local entries = redis.call('ZREVRANGEBYSCORE', jobs, ARGV[1], '-inf', 'WITHSCORES', 'LIMIT', '0', ARGV[2])
local found, left = {}, {}
for n = #entries - 1, 1, -2 do left[#left + 1] = entries[n] end
while #left > 0 do
  local id = table.remove(left)
  local f = redis.call('HMGET', key_of(id), 'version', 'children')
  if f[1] and string.sub(id, 1, #prefix) == prefix then found[#found + 1] = id end
  for child in string.gmatch(f[2] or '', '%S+') do left[#left + 1] = child end
end
return { #entries == 2 * most and '(' .. entries[#entries] or '', found }
