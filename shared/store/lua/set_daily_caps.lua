-- Set the daily caps. The latest caps win. A supervisor sends the time at which it first set its
-- caps, so that they come back if Redis has lost them or has restored older data.
-- KEYS caps.  ARGV: time at which these caps were first set (Unix ms; '': now), then pairs of field
-- and value.
-- Returns the time of these caps (Unix ms); if newer or equal caps are stored, they stay valid.
local newest, at = tonumber(redis.call('HGET', KEYS[1], 'since') or 0), tonumber(ARGV[1])
if at and at <= newest then return at end
at = at or math.max(now_ms(), newest + 1)
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'since', string.format('%d', at), unpack(ARGV, 2))
return at
