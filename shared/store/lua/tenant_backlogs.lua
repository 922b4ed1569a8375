-- Waiting handoffs by queue and tenant. Reads only.
-- ARGV: queues.  Returns {queue, tenant, number of handoffs, time at which the oldest began to wait
-- (Unix ms)}...
local tenants = labelled_tenants()
tenants[#tenants + 1] = OTHER
local backlogs = {}
for _, queue in ipairs(ARGV) do
  for n, tenant in ipairs(tenants) do
    local set = 'handoff:waiting:' .. queue .. '/' .. tenant
    local waiting = redis.call('ZCARD', set)
    if waiting > 0 and (tenant ~= OTHER or n == #tenants) then
      backlogs[#backlogs + 1] = {
        queue, tenant, waiting, redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')[2],
      }
    end
  end
end
return backlogs
