-- End an agent's pause. Its handoffs are marked as lost, and the next sweep finds them.
-- KEYS paused agents, paused handoffs.  ARGV: agent.  Returns the number of its handoffs; -1: the
-- agent was not paused.
local paused, handoffs = KEYS[1], KEYS[2]
if redis.call('HDEL', paused, ARGV[1]) == 0 then return -1 end
local at = now_ms()
local members = redis.call('ZRANGE', handoffs, 0, -1)
for _, member in ipairs(members) do
  -- A worker of the agent may have written any member, also an unknown handoff, which no user may
  -- change, and a handoff of another agent.
  local job, handoff = split_member(member)
  if job and agent_of(key_of(job), handoff) == ARGV[1] then
    local handoff_hash = handoff_key(key_of(job), handoff)
    if redis.call('HDEL', handoff_hash, 'waits') == 1 then
      redis.call('HSET', handoff_hash, 'lost', 1)
      redis.call('ZADD', due_of(key_of(job), handoff), at, member)
    end
  end
end
redis.call('DEL', handoffs)
return #members
