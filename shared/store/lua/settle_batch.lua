-- Settle the reservation of an ended handoff whose call is in a batch, once.
-- KEYS job.  ARGV: handoff, entry of `handoff:batches` ('': none, because the job is deleted), used
-- (JSON; '': the upper bound)
local job, handoff, entry = KEYS[1], ARGV[1], ARGV[2]
local h = handoff_key(job, handoff)
if entry ~= '' and redis.call('ZREM', 'handoff:batches', entry) == 0 then return end
local batch = redis.call('HGET', h, 'batch') -- a handoff that was opened again may have another one
if entry ~= '' and not (batch and string.find(entry, ' ' .. batch .. ' ', 1, true)) then return end
if redis.call('HEXISTS', h, 'r_batch') == 1 then settle(job, h, from_json(ARGV[3])) end
