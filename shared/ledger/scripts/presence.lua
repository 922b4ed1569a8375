-- Who is there, and which of these handoffs, or of all of these jobs, wait in the queue of a specialist whom nobody serves. Reads only.
-- KEYS serving, queues.  ARGV `job` (the queues are read to their ends) or `job/handoff`...
-- Returns {queues that are served, `queue/job/handoff` of what waits}
local serving, queues = KEYS[1], KEYS[2]
local jobs, handoffs = {}, {}
local served, names, found = { think = true }, {}, {} -- who serves `think` is a supervisor
for _, asked in ipairs(ARGV) do
  if string.find(asked, '/', 1, true) then handoffs[#handoffs + 1] = asked else jobs[asked] = true end
end
for _, member in ipairs(redis.call('ZRANGEBYSCORE', serving, now_ms(), '+inf')) do
  local queue = string.match(member, '^(.-)/')
  if not served[queue] then names[#names + 1] = queue end
  served[queue] = true
end
for _, queue in ipairs(redis.call('HKEYS', queues)) do
  if not served[queue] then
    local waiting = 'handoff:waiting:' .. queue
    for _, member in ipairs(handoffs) do
      if redis.call('ZSCORE', waiting, member) then found[#found + 1] = queue .. '/' .. member end
    end
    for _, member in ipairs(next(jobs) and redis.call('ZRANGE', waiting, 0, -1) or {}) do
      if jobs[string.match(member, '^(.-)/')] then found[#found + 1] = queue .. '/' .. member end
    end
  end
end
return { names, found }
