-- Running handoffs, and deferred handoffs, which have no slot. Reads only.
-- KEYS due, queues, waiting sets of the supervisors' queues (a job with a wake-up is not due).
-- ARGV: most handoffs to read, 1 to read the state of each due job (or 0: the two numbers of jobs
-- mean nothing). All sets but `due` may have any number of false entries of a worker that was taken
-- over. So at most MAX_ENTRIES of each set are read, and only a job that exists counts.
-- Returns {Unix ms, open jobs, jobs that wait for a person, {job, handoff, agent, deferred until
-- (Unix ms) or '', worker, doing, turns, first claimed (Unix ms)}...}
local due, most, reads_jobs = KEYS[1], tonumber(ARGV[1]), ARGV[2] == '1'
local at, handoffs = now_ms(), {}
local open, asking, read = 0, 0, 0
local is_read = {} -- jobs whose state was read: a job can be due in the sets of several agents
-- Count a job if it is open. An ended job is due until its end is reported.
local function count_if_open(id)
  if is_read[id] then return end
  is_read[id] = true
  local status, asks = unpack(redis.call('HMGET', key_of(id), 'status', 'asks'))
  if not is_open(status) then return end
  open = open + 1
  local asked_last = redis.call('HGET', progress_of(key_of(id)), 'asked_last')
  if waits_for_person(status, asks, asked_last, key_of(id)) then asking = asking + 1 end
end
local MAX_ENTRIES = 10000
local latest = integer(at + MAX_DUE_AHEAD_MS)
local function read_entries(set)
  return short_members(set, '-inf', latest, MAX_ENTRIES)
end
for n = 3, #KEYS do
  for _, job in ipairs(read_entries(KEYS[n])) do count_if_open(job) end
end
local members = redis.call('ZRANGE', due, 0, -1)
for _, queue in ipairs(redis.call('HKEYS', KEYS[2])) do
  for _, member in ipairs(read_entries('handoff:due:' .. queue)) do
    members[#members + 1] = member
  end
end
for _, member in ipairs(members) do
  local job, handoff = split_member(member)
  if reads_jobs then count_if_open(job or member) end
  if handoff and read < most then
    read = read + 1
    local key = key_of(job)
    local state, deferred, worker, doing, turns, started_at = unpack(redis.call(
      'HMGET', handoff_key(key, handoff), 'state', 'deferred', 'worker', 'doing', 'turns',
      'started_at'
    ))
    deferred = number_or(deferred, 0)
    local is_deferred = deferred > at
    if state == 'running' or is_deferred then
      handoffs[#handoffs + 1] = {
        job, handoff, agent_of(key, handoff), is_deferred and integer(deferred) or '',
        short(worker, MAX_LINE_BYTES) or '', short(doing, MAX_LINE_BYTES) or '',
        integer(number_or(turns, 0)), integer(number_or(started_at, 0)),
      }
    end
  end
end
return { at, open, asking, handoffs }
