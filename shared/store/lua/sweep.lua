-- Find the work that a time limit or a lost message makes necessary. The script finds and notes it
-- in one step, so that any number of sweepers share the work. The work stays due until a process
-- claims the handoff or runs `mark_sent`. So a wake-up may be lost, or its receiver may die.
-- KEYS due, queues.  ARGV: most entries of each set, bump_ms (time until a wake-up or a lost
-- handoff is found again), grace_ms (time that a message may be in no queue), lease_ms.
-- Returns {`job` and `job/handoff` members for the supervisor's queue, jobs for the queue of
-- submissions, whether more may be due (1|0)}
local due, queues = KEYS[1], KEYS[2]
local most, bump, grace = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local at = now_ms()
record_call(at, tonumber(ARGV[4]))
local WAITING = 'handoff:waiting:'
local overdue, fresh, woken = {}, {}, {}

-- Return the handoff of a due entry; nil if the entry is a job. `set`: the set that
-- it must be in; `lease`: real end of its lease (Unix ms); `is_gone`: it has ended, or its job is
-- deleted; `is_in_batch`: it has ended while its call was in a batch; `has_lapsed`: its claim is
-- lost.
local function find_handoff(member)
  local job, handoff = split_member(member)
  if not job then return nil end
  local key = key_of(job)
  local handoff_hash = handoff_key(key, handoff)
  local state, stored_lease = unpack(redis.call('HMGET', handoff_hash, 'state', 'lease'))
  local is_ended = not state or state == 'done' or state == 'dropped'
  local is_gone = is_ended or redis.call('EXISTS', key) == 0
  local is_in_batch = state == 'done' and redis.call('HEXISTS', handoff_hash, 'r_batch') == 1
  local lease = lease_end(number_or(stored_lease, 0))
  return {
    job = job, key = key, id = handoff, hash = handoff_hash, set = due_of(key, handoff),
    lease = lease, is_gone = is_gone, is_in_batch = is_in_batch,
    has_lapsed = not is_gone and state == 'running' and lease <= at,
    is_issued = not is_gone and state == 'issued',
  }
end

-- End the claim of a process that is dead or treated as dead. The call in flight is charged at its
-- upper bound, so that other handoffs no longer wait for the budget. The old claim is refused from
-- now on.
local function abandon(handoff)
  settle_lost(handoff.key, handoff.hash)
  count_lost(handoff.key, handoff.hash)
  add_to_metric('1', 'sweeper_recoveries', 'lease')
  redis.call('HDEL', handoff.hash, 'fence')
  redis.call('HSET', handoff.hash, 'state', 'issued', 'lease', 0, 'lost', 1)
  handoff.is_issued = true
end

-- Note that a job will be woken, and return the list of results that it belongs to. A job that has
-- not begun goes to the queue of submissions, so that thousands of such jobs do not wait in front
-- of the wake-ups.
local function note_wake_up(job, status)
  local is_fresh = status == 'queued'
  record_sending(is_fresh and 'submissions' or 'supervisor', { at, job })
  woken[job] = true
  return is_fresh and fresh or overdue
end

-- Return whether a wake-up of a job waits. Workers write the set of the supervisor's queue, so an
-- entry of an attacker may hide the job. A sweep believes such an entry for BELIEVED_MS, from the
-- Unix ms in the field `believed` of the job. Then it wakes the job again. Each time is twice as
-- long as the time before, because the real wake-ups of a busy supervisor wait for minutes, too.
-- The field `doubted` has the number of these times. The next evaluation removes both fields.
local BELIEVED_MS = 60 * 1000
local MAX_DOUBTED = 6
local function is_woken(job)
  if redis.call('ZSCORE', WAITING .. 'submissions', job) then return true end
  if not redis.call('ZSCORE', WAITING .. 'supervisor', job) then return false end
  local key = key_of(job)
  local since, doubted = unpack(redis.call('HMGET', key, 'believed', 'doubted'))
  local times = tonumber(doubted or 0)
  if since and at >= tonumber(since) + BELIEVED_MS * 2 ^ times then
    times = math.min(times + 1, MAX_DOUBTED)
    redis.call('HSET', key, 'believed', integer(at), 'doubted', integer(times))
    return false
  end
  if not since then redis.call('HSET', key, 'believed', integer(at)) end
  return true
end

-- Wake the job of a lost handoff, unless a wake-up waits already. Returns whether the handoff can
-- be reported with a wake-up of this sweep.
local function may_wake(job)
  if woken[job] then return true end
  if is_woken(job) then return false end
  note_wake_up(job, 'running')
  return true
end

-- Repair a queue with fewer elements than messages: a worker popped an element and died before it
-- took a message. An element is added for each missing message. Entries that no job needs are
-- removed. Returns whether the queue is empty.
local function repair_length(queue)
  local fair, elements = fair_key(queue), redis.call('LLEN', queue)
  local missing = redis.call('ZCARD', fair) - elements
  local entries = {}
  if missing > 0 then entries = redis.call('ZRANGE', fair, 0, math.min(missing, most) - 1) end
  for _, entry in ipairs(entries) do
    local member = string.match(entry, '^(%S+) .')
    local text = redis.call('HGET', fair .. ':messages', entry)
    local handoff = member and find_handoff(member)
    if not member or not text or (handoff and not handoff.is_issued) then
      redis.call('ZREM', fair, entry)
      redis.call('HDEL', fair .. ':messages', entry)
    else
      redis.call('RPUSH', queue, text)
    end
  end
  if missing > 0 then forget_turns_of_empty(fair) end
  return elements == 0 and missing <= 0
end

-- Return whether the next element of the queue is the message of this member, without a place in
-- the fair order.
local function is_alone_in(queue, member)
  local ALONE, element = ' ', redis.call('LINDEX', queue, -1) or ''
  return string.sub(element, -1) == ALONE and string.find(element, '"' .. member .. '"', 1, true)
end

-- Find lost entries of a queue's waiting set: entries that a sender or receiver has for longer than
-- `within` ms, and older entries of an empty queue. Age alone proves nothing. An entry that was
-- claimed or evaluated in the meantime is not in the waiting set.
local function lost_in(queue, within)
  local out, waiting, lost = 'handoff:out:' .. queue, WAITING .. queue, {}
  if not may_use(waiting) then return lost end
  local is_empty = repair_length(queue)
  local before = at - within
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', out, '-inf', before, 'LIMIT', 0, most)) do
    if not redis.call('ZSCORE', waiting, member) then
      redis.call('ZREM', out, member)
    elseif not is_alone_in(queue, member) then
      lost[#lost + 1] = member
    end
  end
  if is_empty then
    local members = redis.call('ZRANGEBYSCORE', waiting, '-inf', before, 'LIMIT', 0, most)
    for _, member in ipairs(members) do
      if not redis.call('ZSCORE', out, member) then lost[#lost + 1] = member end
    end
  end
  return lost
end

for queue, within in pairs({ supervisor = bump, submissions = grace }) do
  for _, job in ipairs(lost_in(queue, within)) do
    leave_queue(queue, job)
    local status = redis.call('HGET', key_of(job), 'status')
    if status then
      table.insert(note_wake_up(job, status), job)
      add_to_metric('1', 'sweeper_recoveries', 'wake_up')
    end
  end
end

-- Return whether a supervisor has evaluated all events of a job. Then the wake-up of a worker has
-- nothing to do.
local function is_seen(job)
  local seen = redis.call('HGET', key_of(job), 'seen')
  return tonumber(seen) == version_of(key_of(job))
end

-- Evaluate an entry of a set of due jobs and handoffs. `agent`: the agent of the set, or nil.
local function evaluate_entry(set, agent, member)
  local handoff = find_handoff(member)
  if not handoff then
    redis.call('ZREM', set, member)
    local status = redis.call('HGET', key_of(member), 'status')
    if not status or agent and is_seen(member) then return end
    -- An evaluation that read the journal before the event ends with `set_next_evaluation`, which
    -- leaves the time of the job in `handoff:due` as it is. So that time must be early. Without an
    -- event, the evaluation sets the next time, unless a worker destroys the wake-up.
    local again = integer(at + (agent and bump or BELIEVED_MS))
    redis.call('ZADD', due, 'LT', again, member)
    if not is_woken(member) then table.insert(note_wake_up(member, status), member) end
    return
  end
  if handoff.is_gone or handoff.set ~= set then
    redis.call('ZREM', set, member)
    if handoff.is_in_batch then settle_unanswered(handoff.key, handoff.hash, handoff.id) end
    return
  end
  if handoff.has_lapsed then abandon(handoff) end
  if not handoff.is_issued then
    -- a worker may have written any state
    redis.call('ZADD', set, handoff.lease > at and handoff.lease or at + bump, member)
    return
  end
  redis.call('ZADD', set, at + bump, member)
  if may_wake(handoff.job) then
    redis.call('HSET', handoff.hash, 'lost', 1)
    redis.call('HDEL', handoff.hash, 'waits', 'deferred') -- the deferral is over
    overdue[#overdue + 1] = member
  end
end

-- Evaluate the due entries of a set. An entry whose handoff has fields that cannot be read is due
-- again later. It stops no other entry. All sets together have a limit, so that Redis is not
-- blocked for long when the handoffs of hundreds of agents are due at once.
-- An entry of a worker that was taken over may be due after any honest time, so that no sweep would
-- ever reach it. It is removed.
local is_more, left = 0, 5 * most
local function evaluate_set(set, agent)
  if agent then
    redis.call('ZREMRANGEBYSCORE', set, '(' .. integer(at + MAX_DUE_AHEAD_MS), '+inf')
  end
  local part = math.min(most, left)
  local members = redis.call('ZRANGEBYSCORE', set, '-inf', at, 'LIMIT', 0, part)
  if #members == part then is_more = 1 end
  left = left - #members
  for _, member in ipairs(members) do
    if not pcall(evaluate_entry, set, agent, member) then
      redis.call('ZADD', set, 'XX', integer(at + bump), member)
    end
  end
end

-- Return whether a handoff may wait in a queue. Workers write the waiting set of their agent, and
-- may name handoffs of other agents there.
local function may_wait_in(queue, handoff)
  return handoff.set == (queue == 'roles' and due or 'handoff:due:' .. queue)
end

evaluate_set(due)
for _, queue in ipairs(redis.call('HKEYS', queues)) do
  evaluate_set('handoff:due:' .. queue, queue)
  local lost = lost_in(queue, grace)
  for _, member in ipairs(lost) do
    local handoff = find_handoff(member)
    if not handoff or not handoff.is_issued or not may_wait_in(queue, handoff) then
      leave_queue(queue, member)
    elseif may_wake(handoff.job) then
      redis.call('HSET', handoff.hash, 'lost', 1)
      leave_queue(queue, member)
      add_to_metric('1', 'sweeper_recoveries', 'message')
      redis.call('ZADD', handoff.set, at + bump, member)
      overdue[#overdue + 1] = member
    -- its job will be evaluated; until then, other jobs' entries come first
    elseif #lost >= most then
      redis.call('ZADD', 'handoff:out:' .. queue, 'XX', at, member)
    end
  end
end
return { overdue, fresh, is_more }
