-- Running handoffs, and deferred handoffs, which have no slot. Reads only.
-- KEYS due, waiting sets of the supervisors' queues (a job with a wake-up is not due).  ARGV: most
-- handoffs to read, 1 to read the state of each due job (or 0: the two numbers of jobs mean
-- nothing).
-- Returns {Unix ms, open jobs, jobs that wait for a person, {job, handoff, role, deferred until
-- (Unix ms) or '', worker, doing, turns, first claimed (Unix ms)}...}
local due, most, reads_jobs = KEYS[1], tonumber(ARGV[1]), ARGV[2] == '1'
local at, jobs, open, asking, read, handoffs = now_ms(), {}, 0, 0, 0, {}
local function count(id)
  if jobs[id] then return end
  jobs[id] = true
  open = open + 1
end
-- Count a due job if it is open. An ended job is due until its end is reported.
local function count_if_open(id)
  local f = redis.call('HMGET', key_of(id), 'status', 'asks', 'asked_last')
  if f[1] and f[1] ~= 'queued' and f[1] ~= 'running' then return end
  count(id)
  if waits_for_person(f[1], f[2], f[3], key_of(id)) then asking = asking + 1 end
end
for n = 2, #KEYS do
  for _, job in ipairs(redis.call('ZRANGE', KEYS[n], 0, -1)) do count(job) end
end
for _, member in ipairs(redis.call('ZRANGE', due, 0, -1)) do
  local job, handoff = string.match(member, '^(.-)/(.+)$')
  if reads_jobs then
    if job then count(job) else count_if_open(member) end
  end
  if handoff and read < most then
    read = read + 1
    local f = redis.call('HMGET', key_of(job) .. ':h:' .. handoff, 'state', 'role', 'deferred', 'worker', 'doing', 'turns', 'started_at')
    local is_deferred = f[3] and tonumber(f[3]) > at
    if f[1] == 'running' or is_deferred then
      handoffs[#handoffs + 1] = { job, handoff, f[2] or '', is_deferred and f[3] or '', f[4] or '', f[5] or '', f[6] or '0', f[7] or '0' }
    end
  end
end
return { at, open, asking, handoffs }
