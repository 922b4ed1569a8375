-- Part of the scripts that a pause stops: the kill switch of a role.

-- Return the role if it is paused, else nil.
local function paused_role(role)
  if role and redis.call('HEXISTS', 'handoff:paused', role) == 1 then return role end
  return nil
end

-- Pause a handoff until its role is unpaused. It waits in no queue, and the sweeper does not
-- find it.
local function pause_handoff(job, handoff, role)
  local handoff_hash, member = handoff_key(job, handoff), member_of(job, handoff)
  redis.call('HSET', handoff_hash, 'state', 'issued', 'lease', '0', 'waits', '1')
  redis.call('HDEL', handoff_hash, 'lost')
  redis.call('ZREM', due_of(job, handoff), member)
  local queue = redis.call('HGET', handoff_hash, 'queue')
  if queue then leave_queue(queue, member) end
  redis.call('ZADD', 'handoff:paused_handoffs:' .. role, now_ms(), member)
end
