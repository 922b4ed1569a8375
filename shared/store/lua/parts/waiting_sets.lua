-- The sets of handoffs and wake-ups that wait in a queue, by queue and by tenant.

-- Longest time from now until an honest entry of a set of due jobs and handoffs is due. It is the
-- longest time of a job and the longest wait for a person, together.
local MAX_DUE_AHEAD_MS = 400 * 24 * 3600 * 1000

-- Return whether the Redis user of this process may use a sorted set. It may not use the sets of a
-- specialist that the installation does not know, and such a queue must stop no other queue.
local function may_use(set)
  return type(redis.pcall('ZCARD', set)) == 'number'
end

-- Return the sets that a waiting handoff may be in besides the queue's waiting set: the set of its
-- tenant, or the sets of all tenants if its job is gone. A wake-up, which is a job, is in no such
-- set.
local function sets_of_tenant(queue, member)
  local id = string.match(member, '^(.-)/')
  if not id then return {} end
  local set, job = 'handoff:waiting:' .. queue .. '/', job_of(key_of(id))
  if job.version then return { set .. label('tenant', job.tenant) } end
  local sets = { set .. OTHER }
  for n, tenant in ipairs(labelled_tenants()) do sets[n + 1] = set .. tenant end
  return sets
end

-- Note that these entries wait in a queue. `entries`: time (Unix ms) and member, in turn, from
-- position `first` to `last`; all are of one job.
local function record_waiting(queue, entries, first, last)
  redis.call('ZADD', 'handoff:waiting:' .. queue, unpack(entries, first, last))
  for _, set in ipairs(sets_of_tenant(queue, entries[2])) do
    redis.call('ZADD', set, unpack(entries, first, last))
  end
end

-- Note handoffs or wake-ups that their sender will publish to this queue. While they are in no
-- queue, the sorted set `handoff:out:QUEUE` has them, too. `entries`: see `record_waiting`.
local function record_sending(queue, entries)
  for first = 1, #entries, MAX_AT_ONCE do
    local last = math.min(first + MAX_AT_ONCE - 1, #entries)
    record_waiting(queue, entries, first, last)
    redis.call('ZADD', 'handoff:out:' .. queue, unpack(entries, first, last))
  end
end

-- Remove an entry that no longer waits in this queue.
local function leave_queue(queue, member)
  redis.call('ZREM', 'handoff:waiting:' .. queue, member)
  redis.call('ZREM', 'handoff:out:' .. queue, member)
  for _, set in ipairs(sets_of_tenant(queue, member)) do redis.call('ZREM', set, member) end
end

-- Note that a supervisor has evaluated a job with this status, so that its wake-up no longer waits.
-- Only a job that has not begun can have an entry in the queue of submissions.
local function record_evaluated(id, status)
  leave_queue('supervisor', id)
  if status then redis.call('HDEL', key_of(id), 'believed', 'doubted') end -- see `sweep.lua`
  if not status or status == 'queued' then leave_queue('submissions', id) end
end
