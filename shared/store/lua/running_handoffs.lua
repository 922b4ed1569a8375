-- Running handoffs, and deferred handoffs, which have no slot. Reads only.
-- KEYS due, queues, waiting sets of the supervisors' queues (a job with a wake-up is not due).
-- ARGV: most handoffs to read, 1 to read the state of each due job (or 0: the two numbers of jobs
-- mean nothing).
-- Returns {Unix ms, open jobs, jobs that wait for a person, {job, handoff, agent, deferred until
-- (Unix ms) or '', worker, doing, turns, first claimed (Unix ms)}...}
local due, most, reads_jobs = KEYS[1], tonumber(ARGV[1]), ARGV[2] == '1'
local at, handoffs = now_ms(), {}
local jobs, open, asking = {}, 0, 0 -- counted jobs as a set, and their numbers
local read = 0
local is_read = {} -- jobs whose state was read: a job can be due in the sets of several agents
local function count(id)
  if jobs[id] then return end
  jobs[id] = true
  open = open + 1
end
-- Count a due job if it is open. An ended job is due until its end is reported.
local function count_if_open(id)
  if is_read[id] then return end
  is_read[id] = true
  local status, asks = unpack(redis.call('HMGET', key_of(id), 'status', 'asks'))
  if status and not is_open(status) then return end
  count(id)
  local asked_last = redis.call('HGET', progress_of(key_of(id)), 'asked_last')
  if waits_for_person(status, asks, asked_last, key_of(id)) then asking = asking + 1 end
end
for n = 3, #KEYS do
  for _, job in ipairs(redis.call('ZRANGE', KEYS[n], 0, -1)) do count(job) end
end
local members = redis.call('ZRANGE', due, 0, -1)
for _, queue in ipairs(redis.call('HKEYS', KEYS[2])) do
  for _, member in ipairs(redis.call('ZRANGE', 'handoff:due:' .. queue, 0, -1)) do
    members[#members + 1] = member
  end
end
for _, member in ipairs(members) do
  local job, handoff = split_member(member)
  if reads_jobs then
    if job then count(job) else count_if_open(member) end
  end
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
