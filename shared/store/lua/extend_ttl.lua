-- Extend the time to live of keys, and never shorten it.
-- KEYS: the keys.  ARGV: ms.  Returns for each key 1 (it exists) | 0 (it does not exist)
local ms, there = tonumber(ARGV[1]), {}
for place, key in ipairs(KEYS) do
  local left = redis.call('PTTL', key)
  if left >= 0 and left < ms then redis.call('PEXPIRE', key, ms) end
  there[place] = left ~= -2 and 1 or 0
end
return there
