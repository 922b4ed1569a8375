-- Store or remove a note of a tenant, if it is still as the caller has read it.
-- KEYS notes, expiry, jobs.  ARGV: `MemoryNoteArguments` in `positional_arguments.py`.
-- Returns 1; 0: the note has changed; -1: the tenant has too many notes.
local notes, expiry, jobs = KEYS[1], KEYS[2], KEYS[3]
local path, old, new, now, until_ms, most, moved_from, moved, job = unpack(ARGV, 1, 9)

local function remove(name)
  redis.call('HDEL', notes, name)
  redis.call('ZREM', expiry, name)
  redis.call('HDEL', jobs, name)
end

for _, expired in ipairs(redis.call('ZRANGEBYSCORE', expiry, '-inf', now, 'LIMIT', 0, 100)) do
  remove(expired)
end
if (redis.call('HGET', notes, path) or '') ~= old then return 0 end
if moved ~= '' then -- the number of notes stays
  if redis.call('HGET', notes, moved_from) ~= moved then return 0 end
  remove(moved_from)
end
if new == '' then
  remove(path)
  return 1
end
if old == '' and redis.call('HLEN', notes) >= tonumber(most) then return -1 end
redis.call('HSET', notes, path, new)
redis.call('ZADD', expiry, until_ms, path)
if job ~= '' then redis.call('HSET', jobs, path, job) else redis.call('HDEL', jobs, path) end
-- A worker may have written an expiry that is not a time.
local last = integer(number_or(redis.call('ZRANGE', expiry, -1, -1, 'WITHSCORES')[2], 2 ^ 53))
redis.call('PEXPIREAT', notes, last)
redis.call('PEXPIREAT', expiry, last)
redis.call('PEXPIREAT', jobs, last)
return 1
