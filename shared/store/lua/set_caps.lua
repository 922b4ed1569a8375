-- Set the daily caps. KEYS caps.  ARGV: time at which a supervisor set them (Unix ms; '': now),
-- then pairs of field and value.
-- The latest caps win; older caps are restored if Redis has lost them, or has restored older data.
-- Returns the time at which the valid caps were set.
local held, at = tonumber(redis.call('HGET', KEYS[1], 'since') or 0), tonumber(ARGV[1])
if at and at <= held then return at end
at = at or math.max(now_ms(), held + 1)
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'since', string.format('%d', at), unpack(ARGV, 2))
return at
