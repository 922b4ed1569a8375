-- Store or remove a note of a tenant, if it is still as the caller has read it.
-- KEYS notes, expiry.  ARGV: `MemoryNoteArguments` in `positional_arguments.py`.
-- Returns 1; 0: the note has changed; -1: the tenant has too many notes.
local notes, expiry = KEYS[1], KEYS[2]
local path, old, new, now, until_ms, most, moved_from, moved = unpack(ARGV, 1, 8)
for _, expired in ipairs(redis.call('ZRANGEBYSCORE', expiry, '-inf', now, 'LIMIT', 0, 100)) do
  redis.call('HDEL', notes, expired)
  redis.call('ZREM', expiry, expired)
end
if (redis.call('HGET', notes, path) or '') ~= old then return 0 end
if moved ~= '' then -- the number of notes stays
  if redis.call('HGET', notes, moved_from) ~= moved then return 0 end
  redis.call('HDEL', notes, moved_from)
  redis.call('ZREM', expiry, moved_from)
end
if new == '' then
  redis.call('HDEL', notes, path)
  redis.call('ZREM', expiry, path)
  return 1
end
if old == '' and redis.call('HLEN', notes) >= tonumber(most) then return -1 end
redis.call('HSET', notes, path, new)
redis.call('ZADD', expiry, until_ms, path)
-- A worker may have written an expiry that is not a time.
local last = integer(number_or(redis.call('ZRANGE', expiry, -1, -1, 'WITHSCORES')[2], 2 ^ 53))
redis.call('PEXPIREAT', notes, last)
redis.call('PEXPIREAT', expiry, last)
return 1
