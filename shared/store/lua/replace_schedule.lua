-- Add, replace or remove a schedule, if it is still as the caller has read it.
-- KEYS schedules, slots, the schedule's job.  ARGV: member, old text ('': it must not exist), new
-- text ('': remove it), Unix ms at which a supervisor must check it ('': never), most schedules of
-- a tenant.
-- Returns 1; 0: the schedule has changed; -1: the tenant has too many schedules.
local schedules, slots, job = KEYS[1], KEYS[2], KEYS[3]
local member, old, new, due, most = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
if (redis.call('HGET', schedules, member) or '') ~= old then return 0 end
if old == '' and redis.call('HLEN', schedules) >= most then
  local tenant, count = string.match(member, '^[^/]*(/.*)$'), 0
  for _, other in ipairs(redis.call('HKEYS', schedules)) do
    if string.match(other, '^[^/]*(/.*)$') == tenant then count = count + 1 end
  end
  if count >= most then return -1 end
end
if new == '' then
  redis.call('HDEL', schedules, member)
  redis.call('ZREM', slots, member)
  redis.call('DEL', job)
  return 1
end
redis.call('HSET', schedules, member, new)
if due == '' then redis.call('ZREM', slots, member) else redis.call('ZADD', slots, due, member) end
if old == '' then redis.call('PERSIST', job) end
return 1
