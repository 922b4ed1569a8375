-- Note that the messages of lost handoffs were sent: from now on they wait in their queues. Before
-- this note, sweeps find these handoffs again, because the sender may have died.
-- KEYS job.  ARGV: handoff...  Returns 1 | 0 (there is no such job)
local job = KEYS[1]
if redis.call('EXISTS', job) == 0 then return 0 end
for _, handoff in ipairs(ARGV) do
  local handoff_hash, member = handoff_key(job, handoff), member_of(job, handoff)
  local state, lost, queue = unpack(redis.call('HMGET', handoff_hash, 'state', 'lost', 'queue'))
  if state == 'issued' and lost and queue then -- otherwise it was claimed in the meantime
    local agent = agent_of(job, handoff)
    if not OWN_ROLES[agent] then queue = agent end -- a worker may have written any name
    redis.call('HDEL', handoff_hash, 'lost')
    redis.call('ZREM', due_of(job, handoff), member)
    record_waiting(queue, { integer(now_ms()), member }, 1, 2)
  end
end
return 1
