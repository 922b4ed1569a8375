-- Return payloads of a job. Reads only. A worker that was taken over may have stored payloads of
-- 500 MB. So a payload that is too long is not read.
-- KEYS payloads.  ARGV: most bytes of a payload, most bytes of all payloads, digests.
-- Returns the stored payloads; LEFT_OUT in place of a payload that is too long, false in place of a
-- missing one
local LEFT_OUT = '>' -- no stored payload begins with it
local payloads, most, left = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
local found = {}
for n = 3, #ARGV do
  local length = redis.call('HSTRLEN', payloads, ARGV[n])
  if length > most or length > left then
    found[n - 2] = LEFT_OUT
  else
    found[n - 2] = redis.call('HGET', payloads, ARGV[n])
    left = left - length
  end
end
return found
