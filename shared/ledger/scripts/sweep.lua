-- What time, or a lost message, makes necessary: taken and noted in one step, so that any number of sweepers share the work.
-- KEYS due, queues, taken.  ARGV most, bump_ms, grace_ms.
-- Returns {`job` and `job/handoff` members for the supervisor's queue, jobs for the submissions, whether more may be due (1|0)}
local due, queues, taken = KEYS[1], KEYS[2], KEYS[3]
local most, bump, grace = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local at = now_ms()
local WAITING = 'handoff:waiting:'
local found, fresh, woken = {}, {}, {}

local function standing(member)
  local job, handoff = string.match(member, '^(.-)/(.+)$')
  if not job then return nil end
  local key = 'handoff:{' .. job .. '}'
  local h = key .. ':h:' .. handoff
  local f = redis.call('HMGET', h, 'state', 'lease', 'queue')
  local is_over = not f[1] or f[1] == 'done' or f[1] == 'dropped' or redis.call('EXISTS', key) == 0
  return { job = job, key = key, h = h, lease = tonumber(f[2]), queue = f[3], is_gone = is_over,
    has_lapsed = not is_over and f[1] == 'running' and tonumber(f[2]) <= at, is_issued = not is_over and f[1] == 'issued' }
end

-- Its process is dead or as good as dead: the call that was in the air is booked at its worst case, its siblings wait for the budget no
-- longer, and the old claim is refused from here on.
local function abandon(one)
  settle(one.key, one.h, nil)
  redis.call('HDEL', one.h, 'fence')
  redis.call('HSET', one.h, 'state', 'issued', 'lease', 0, 'lost', 1)
  one.is_issued = true
end

-- A job that nobody has begun is announced again, so that thousands of them do not stand before the wake-ups.
local function note_wake_up(job, status)
  local is_fresh = status == 'queued'
  redis.call('ZADD', WAITING .. (is_fresh and 'submissions' or 'supervisor'), at, job)
  woken[job] = true
  return is_fresh and fresh or found
end

local function is_woken(job)
  return redis.call('ZSCORE', WAITING .. 'supervisor', job) or redis.call('ZSCORE', WAITING .. 'submissions', job)
end

-- Whether this sweep may wake the job: one that was woken, and that nobody has looked at since, is looked at when its turn comes.
local function may_wake(job)
  if woken[job] then return true end
  if is_woken(job) then return false end
  note_wake_up(job, 'running')
  return true
end

-- Everything that stands in a queue's waiting set and is lost: the queue is empty, or one that was sent later has been taken.
-- Age alone says nothing.
local function lost_in(queue, latest)
  local before = math.min(tonumber(latest or 0), at) - grace
  if redis.call('LLEN', queue) == 0 then before = at - grace end
  return redis.call('ZRANGEBYSCORE', WAITING .. queue, '-inf', before, 'LIMIT', 0, most)
end

for _, queue in ipairs({ 'supervisor', 'submissions' }) do
  for _, job in ipairs(lost_in(queue, redis.call('HGET', taken, queue))) do
    redis.call('ZREM', WAITING .. queue, job)
    local status = redis.call('HGET', 'handoff:{' .. job .. '}', 'status')
    if status then table.insert(note_wake_up(job, status), job) end
  end
end

local members = redis.call('ZRANGEBYSCORE', due, '-inf', at, 'LIMIT', 0, most)
for _, member in ipairs(members) do
  local one = standing(member)
  if not one then
    redis.call('ZREM', due, member) -- whoever looks at it says when it is due again
    local status = redis.call('HGET', 'handoff:{' .. member .. '}', 'status')
    if status and not is_woken(member) then table.insert(note_wake_up(member, status), member) end
  elseif one.is_gone then
    redis.call('ZREM', due, member)
  else
    if one.has_lapsed then abandon(one) end
    if not one.is_issued then
      redis.call('ZADD', due, one.lease, member)
    elseif not may_wake(one.job) then
      redis.call('ZADD', due, at + bump, member)
    else
      redis.call('HSET', one.h, 'lost', 1)
      redis.call('HDEL', one.h, 'held', 'parked') -- what was parked has waited long enough
      if one.queue then -- published again once, it waits in its queue like any other, however long that is
        redis.call('ZREM', due, member)
        redis.call('ZADD', WAITING .. one.queue, at, member)
      else
        redis.call('ZADD', due, at + bump, member)
      end
      found[#found + 1] = member
    end
  end
end

local claimed = redis.call('HGETALL', queues)
for i = 1, #claimed, 2 do
  for _, member in ipairs(lost_in(claimed[i], claimed[i + 1])) do
    local one = standing(member)
    if not one or not one.is_issued then
      redis.call('ZREM', WAITING .. claimed[i], member)
    elseif may_wake(one.job) then
      redis.call('HSET', one.h, 'lost', 1)
      redis.call('ZADD', WAITING .. claimed[i], at, member)
      found[#found + 1] = member
    end
  end
end
return { found, fresh, #members == most and 1 or 0 }
