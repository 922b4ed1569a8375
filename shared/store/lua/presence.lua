-- Served queues, paused agents, and the handoffs that wait for a missing or paused agent. It only
-- reads.
-- KEYS serving, queues, paused.  ARGV: last position to read in each waiting set, from 0 (-1: all),
-- longest time of an announcement (ms), most announcements to read, then members: `job` (the sets
-- are searched for its handoffs) or `job/handoff`.
-- Returns {served queues, `agent/job/handoff` of each waiting handoff, agent and pause of each
-- paused agent in turn}
local serving, queues, paused = KEYS[1], KEYS[2], redis.call('HGETALL', KEYS[3])
local jobs, handoffs = {}, {}
-- Only supervisors serve `roles`, which is never reported.
local served, names, waiting_handoffs = { roles = true }, {}, {}
for n = 4, #ARGV do
  local asked = ARGV[n]
  if string.find(asked, '/', 1, true) then
    handoffs[#handoffs + 1] = asked
  else
    jobs[asked] = true
  end
end
local until_ms = integer(now_ms() + ARGV[2])
local now = integer(now_ms())
for _, member in ipairs(short_members(serving, now, until_ms, tonumber(ARGV[3]))) do
  local queue = string.match(member, '^(.-)/')
  if queue and not served[queue] then names[#names + 1] = queue end
  if queue then served[queue] = true end -- a member without a slash is not an announcement
end
local function list_waiting(waiting, whom)
  if not may_use(waiting) then return end
  for _, member in ipairs(handoffs) do
    if redis.call('ZSCORE', waiting, member) then
      waiting_handoffs[#waiting_handoffs + 1] = whom .. '/' .. member
    end
  end
  for _, member in ipairs(next(jobs) and redis.call('ZRANGE', waiting, 0, ARGV[1]) or {}) do
    if jobs[string.match(member, '^(.-)/')] then
      waiting_handoffs[#waiting_handoffs + 1] = whom .. '/' .. member
    end
  end
end
for i = 1, #paused, 2 do
  list_waiting('handoff:paused_handoffs:' .. paused[i], paused[i])
  served[paused[i]] = nil -- handoffs in the queue of a paused agent wait, too
end
for _, queue in ipairs(redis.call('HKEYS', queues)) do
  if not served[queue] then list_waiting('handoff:waiting:' .. queue, queue) end
end
return { names, waiting_handoffs, paused }
