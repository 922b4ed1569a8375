-- Part of the scripts that keep or check leases: time in which no process could reach Redis does
-- not count against a lease.
-- `handoff:outage` has the fields last_call (time of the last call of such a script), since and
-- until (start of the last outage, and end of its grace), all in Unix ms, and times (outages in a
-- row).

-- Both are parts of a lease. Supervisors sweep eight times in a lease, so a quarter of a lease
-- without a sweep is an outage. A lease has two thirds left when an outage begins, and a live
-- process renews it within a third after Redis is back (`leases.py`).
local QUIET, GRACE = 1 / 4, 1 / 2
local LONGEST = 4 -- another process may have longer leases
local MAX_IN_A_ROW = 3 -- otherwise a Redis with rare calls would keep dead claims forever

-- Note the time of a call. If the last call was longer ago than QUIET, note an outage. Redis cannot
-- tell whether it was stopped, unreachable, full or cut off, or whether its clients were.
local function record_call(at, lease)
  local stored = redis.pcall('HMGET', 'handoff:outage', 'last_call', 'until')
  if stored.err then redis.pcall('DEL', 'handoff:outage') end -- the key is not a hash: start again
  local last_call, grace_until = number_or(stored[1], at), number_or(stored[2], 0)
  -- another program wrote this grace: with it, no lease would ever end
  if grace_until > at + lease * LONGEST then
    redis.call('HDEL', 'handoff:outage', 'since', 'until')
    grace_until = 0
  end
  if at - last_call > lease * QUIET then
    local since, times = unpack(redis.call('HMGET', 'handoff:outage', 'since', 'times'))
    since, times = number_or(since, 0), number_or(times, 0) + 1
    if last_call > grace_until or times > MAX_IN_A_ROW then
      since, times = last_call, 1
    end
    grace_until = at + math.floor(lease * GRACE)
    redis.call('HSET', 'handoff:outage', 'since', since, 'until', grace_until, 'times', times)
  end
  redis.call('HSET', 'handoff:outage', 'last_call', integer(at))
end

-- Return the real end of a lease (Unix ms), from the end in its hash. A lease that was valid when
-- the outage began stays valid until its holder has had time to renew it. A script calls
-- `record_call` first.
local outage
local function lease_end(stored_end)
  outage = outage or redis.call('HMGET', 'handoff:outage', 'since', 'until')
  local since, grace_until = number_or(outage[1], 0), number_or(outage[2], 0)
  if stored_end > since and stored_end < grace_until then return grace_until end
  return stored_end
end
