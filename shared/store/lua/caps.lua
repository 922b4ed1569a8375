-- The most in a day. KEYS caps.  ARGV since when a supervisor says so (Unix ms; '': from now on), then pairs of field and value.
-- Who said something last wins; older words are put back where Redis has lost what was said, or has come back with older data.
-- Returns since when these are said.
local held, at = tonumber(redis.call('HGET', KEYS[1], 'since') or 0), tonumber(ARGV[1])
if at and at <= held then return at end
at = at or math.max(now_ms(), held + 1)
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'since', string.format('%d', at), unpack(ARGV, 2))
return at
