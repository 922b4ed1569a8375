-- Part of the scripts that a pause stops: the kill switch of an agent.

-- Return the agent if it is paused, else nil.
local function paused_agent(agent)
  if agent and redis.call('HEXISTS', 'handoff:paused', agent) == 1 then return agent end
  return nil
end

-- Pause a handoff until its agent is unpaused. It waits in no queue, and the sweeper does not
-- find it.
local function pause_handoff(job, handoff, agent)
  local handoff_hash, member = handoff_key(job, handoff), member_of(job, handoff)
  redis.call('HSET', handoff_hash, 'state', 'issued', 'lease', '0', 'waits', '1')
  redis.call('HDEL', handoff_hash, 'lost')
  redis.call('ZREM', due_of(job, handoff), member)
  local queue = redis.call('HGET', handoff_hash, 'queue')
  if queue then leave_queue(queue, member) end
  redis.call('ZADD', 'handoff:paused_handoffs:' .. agent, now_ms(), member)
end
