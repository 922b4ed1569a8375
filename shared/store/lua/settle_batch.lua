-- Settle the reservation of an ended handoff whose call is in a batch, once.
-- KEYS job.  ARGV: handoff, entry of `handoff:batches` ('': none, because the job is deleted), used
-- (JSON; '': the upper bound)
local job, handoff, entry = KEYS[1], ARGV[1], ARGV[2]
local handoff_hash = handoff_key(job, handoff)
if entry ~= '' and redis.call('ZREM', 'handoff:batches', entry) == 0 then return end
-- a handoff that was opened again may have another one
local batch = redis.call('HGET', handoff_hash, 'batch')
if entry ~= '' and not (batch and string.find(entry, ' ' .. batch .. ' ', 1, true)) then return end
if redis.call('HEXISTS', handoff_hash, 'r_batch') == 1 then
  settle(job, handoff_hash, from_json(ARGV[3]))
end
