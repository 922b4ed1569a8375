-- In front of the scripts that keep leases or judge them: time in which nobody could speak to Redis does not count against a lease.
-- `handoff:silence`: heard (when a script of these last ran), and of the last silence since, until (Unix ms), times.

-- Parts of a lease. Supervisors sweep eight times in one, so that a quarter without anybody is a silence; a lease has two thirds left when
-- one begins, and a process that lives renews within a third of it when Redis is back (`leases.py`).
local QUIET, GRACE = 1 / 4, 1 / 2
local MOST_IN_A_ROW = 3 -- or a Redis that is asked too rarely would keep the dead for ever

-- Notes that somebody speaks to Redis, and, where nobody has for a while, the silence. Whether it was Redis that was stopped, away, full or
-- cut off, or those who would speak, cannot be told in here.
local function hear(at, lease)
  local heard = figure(redis.call('HGET', 'handoff:silence', 'heard'), at)
  if at - heard > lease * QUIET then
    local f = redis.call('HMGET', 'handoff:silence', 'since', 'until', 'times')
    local since, good_until, times = figure(f[1], 0), figure(f[2], 0), figure(f[3], 0) + 1
    if heard > good_until or times > MOST_IN_A_ROW then
      since, times = heard, 1
    end
    redis.call('HSET', 'handoff:silence', 'since', since, 'until', at + math.floor(lease * GRACE), 'times', times)
  end
  redis.call('HSET', 'handoff:silence', 'heard', whole(at))
end

-- When a lease really ends: one that was good when the silence began still is, until who holds it has had the time to renew it. Asked only once
-- that was heard.
local silence
local function end_of(ends)
  silence = silence or redis.call('HMGET', 'handoff:silence', 'since', 'until')
  local since, good_until = figure(silence[1], 0), figure(silence[2], 0)
  if ends > since and ends < good_until then return good_until end
  return ends
end
