-- What is at work now, and what waits for its provider with its slot free. Reads only.
-- KEYS due, waiting...: the supervisors' queues (who was woken is not due).  ARGV most handoffs that are read.
-- Returns {Unix ms, jobs that are open, {job, handoff, role, parked until (Unix ms) or '', worker, doing, turns, first claimed (Unix ms)}...}
local due, most = KEYS[1], tonumber(ARGV[1])
local at, jobs, open, read, found = now_ms(), {}, 0, 0, {}
local function count(id)
  if jobs[id] then return end
  jobs[id] = true
  open = open + 1
end
-- One that has ended is due, too, while something is still to be told of it.
local function has_ended(id)
  local status = redis.call('HGET', key_of(id), 'status')
  return status and status ~= 'queued' and status ~= 'running'
end
for n = 2, #KEYS do
  for _, job in ipairs(redis.call('ZRANGE', KEYS[n], 0, -1)) do count(job) end
end
for _, member in ipairs(redis.call('ZRANGE', due, 0, -1)) do
  local job, handoff = string.match(member, '^(.-)/(.+)$')
  if job or not (jobs[member] or has_ended(member)) then count(job or member) end
  if handoff and read < most then
    read = read + 1
    local f = redis.call('HMGET', key_of(job) .. ':h:' .. handoff, 'state', 'role', 'parked', 'worker', 'doing', 'turns', 'started_at')
    local is_parked = f[3] and tonumber(f[3]) > at
    if f[1] == 'running' or is_parked then
      found[#found + 1] = { job, handoff, f[2] or '', is_parked and f[3] or '', f[4] or '', f[5] or '', f[6] or '0', f[7] or '0' }
    end
  end
end
return { at, open, found }
