-- Mark a handoff as lost whose message was a dead letter, so that the next sweep finds it. A
-- handoff of a paused agent stays paused.
-- KEYS job.  ARGV: handoff.  Returns 'ok' | 'unknown' | 'over' (it runs, or has ended)
local job, handoff = KEYS[1], ARGV[1]
local due = due_of(job, handoff)
local handoff_hash = handoff_key(job, handoff)
local state, agent = redis.call('HGET', handoff_hash, 'state'), agent_of(job, handoff)
if not state or redis.call('EXISTS', job) == 0 then return 'unknown' end
if state ~= 'issued' then return 'over' end
local member = member_of(job, handoff)
local is_paused = agent and redis.call('ZSCORE', 'handoff:paused_handoffs:' .. agent, member)
if not is_paused and redis.call('HDEL', handoff_hash, 'waits') == 1 then
  redis.call('HSET', handoff_hash, 'lost', 1)
  redis.call('ZADD', due, now_ms(), member)
end
return 'ok'
