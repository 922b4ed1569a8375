-- Keys that must stay for a while from now on; none is made to stay shorter than it would.
-- KEYS: the keys.  ARGV ms.  Returns, for each, 1: it is there | 0: it is not
local ms, there = tonumber(ARGV[1]), {}
for place, key in ipairs(KEYS) do
  local left = redis.call('PTTL', key)
  if left >= 0 and left < ms then redis.call('PEXPIRE', key, ms) end
  there[place] = left ~= -2 and 1 or 0
end
return there
