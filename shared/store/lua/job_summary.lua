-- Summary of a job of any size: its usage, its first and last events, its running handoffs. Reads
-- only, and a bounded part.
-- KEYS job, due, jobs.  ARGV: most events of the tail, most bytes of an event, most due entries to
-- search, most handoffs to read, most messages of users, then the fields of the job and of its
-- progress; the first is asked_last.
-- Returns {Unix ms, submitted (Unix ms, or '' if the job is not in the list), {values of the fields
-- in the job's hash, values in its progress}, {first event}, tail (oldest first), running handoffs,
-- deferred handoffs, 1 if there may be more handoffs (or 0), subject of the newest question ('' if
-- it was answered), newest messages of users (see `newest_messages`), version of the journal}. Each
-- event is {version, entry}. An entry that is too long is '', except for the first event. Returns
-- nothing if there is no such job.
local job, due, jobs = KEYS[1], KEYS[2], KEYS[3]
local max_bytes = tonumber(ARGV[2])
local max_due = tonumber(ARGV[3])
local max_asked = tonumber(ARGV[4])
local max_messages = tonumber(ARGV[5])
if redis.call('EXISTS', job) == 0 then return false end
local at, id = now_ms(), id_of(job)
local fields = redis.call('HMGET', job, unpack(ARGV, 6))
local progress = redis.call('HMGET', progress_of(job), unpack(ARGV, 6))
-- a worker may have written a text of 500 MB
for place, value in ipairs(progress) do progress[place] = short(value) or false end
for place = 6, #ARGV do
  if ARGV[place] == 'title' then fields[place - 5] = title_of(job) end
end
local asked_last = progress[1]
local question = ''
if asked_last then
  question = short(redis.call('HGET', progress_of(job), 'approval:' .. asked_last)) or ''
end

local function events_from(from, last)
  local events = {}
  for n, entry in ipairs(redis.call('LRANGE', log_of(job), integer(from - 1), integer(last - 1))) do
    local is_short = #entry <= max_bytes or from + n - 1 == 1
    events[n] = { from + n - 1, is_short and entry or '' }
  end
  return events
end
local version = version_of(job)
local first = events_from(1, 1)
local tail = events_from(math.max(1, version - ARGV[1] + 1), version)

-- The due time of a running handoff is the end of its lease; that of a deferred handoff is the end
-- of its deferral. Both are in the future.
local runs, deferred, asked = {}, {}, 0
local members, more = {}, 0
local function search(set)
  local due_members = redis.call('ZRANGEBYSCORE', set, at, '+inf', 'LIMIT', 0, max_due)
  for _, member in ipairs(due_members) do members[#members + 1] = member end
  if #due_members == max_due then more = 1 end
end
search(due)
for agent in string.gmatch(redis.call('HGET', job, 'assigned') or '', '%S+') do
  search('handoff:due:' .. agent)
end
local prefix = id .. '/'
for _, member in ipairs(members) do
  if string.sub(member, 1, #prefix) == prefix then
    if asked == max_asked then
      more = 1
      break
    end
    asked = asked + 1
    local handoff = string.sub(member, #prefix + 1)
    local state, deferred_until = unpack(
      redis.call('HMGET', handoff_key(job, handoff), 'state', 'deferred')
    )
    if state == 'running' then
      runs[#runs + 1] = handoff
    elseif number_or(deferred_until, 0) > at then
      deferred[#deferred + 1] = handoff
    end
  end
end
-- A handoff that a child job does is claimed by the child and has no lease, so it is never due.
for child in string.gmatch(redis.call('HGET', job, 'children') or '', '%S+') do
  if asked == max_asked then
    more = 1
    break
  end
  asked = asked + 1
  local parent = redis.call('HGET', key_of(child), 'parent')
  local handoff = parent
    and string.sub(parent, 1, #prefix) == prefix
    and string.sub(parent, #prefix + 1)
  if handoff and redis.call('HGET', handoff_key(job, handoff), 'state') == 'running' then
    runs[#runs + 1] = handoff
  end
end
return {
  at, redis.call('ZSCORE', jobs, id) or '', { fields, progress }, first, tail, runs, deferred, more,
  question, newest_messages(job, max_messages), version,
}
