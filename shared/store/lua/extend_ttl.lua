-- Extend the time to live of documents, and never shorten it. A deletion of a tenant keeps
-- documents that a job has needed in the meantime.
-- KEYS: the keys.  ARGV: ms.  Returns for each key 1 (it exists) | 0 (it does not exist)
local USED = 'handoff:used_documents'
local ms, there, used = tonumber(ARGV[1]), {}, redis.call('EXISTS', USED) == 1
for place, key in ipairs(KEYS) do
  local left = redis.call('PTTL', key)
  if left >= 0 and left < ms then redis.call('PEXPIRE', key, ms) end
  if used then redis.call('ZADD', USED, integer(now_ms()), key) end
  there[place] = left ~= -2 and 1 or 0
end
return there
