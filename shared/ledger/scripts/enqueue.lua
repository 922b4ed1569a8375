-- A message that is for a job enters its queue: an element more in the list, and its own place in the fair order of all that wait there.
-- Whoever pops an element gets, by `dequeue`, the first message of that order, whichever the element is.
-- One that finds nothing there needs no order: it is what its element holds, which ALONE says, until the next comes; then both get their
-- places. Until it is claimed, it may be on the hands of who has popped that.
-- The order is start-time fair queueing with messages of cost 1: within a class of priority a message's score is the larger of the lowest
-- that waits and its tenant's next one, and that is one more then. So tenants take turns, each in the order in which it has published.
-- KEYS queue.  ARGV member (`job` or `job/handoff`), delivery tag, message, first (1: ahead of all of its class | 0).  Returns nothing
local queue, text, is_first = KEYS[1], ARGV[3], ARGV[4] == '1'
local fair, out = 'handoff:fair:' .. queue, 'handoff:out:' .. queue
local CLASS = 2 ^ 40 -- scores of a class; more than are ever given before it is empty and begins again
local ALONE = ' '

local function place(member, tag, message, goes_first)
  local f = redis.call('HMGET', 'handoff:{' .. string.match(member, '^[^/]*') .. '}', 'tenant', 'priority')
  local base = f[2] == 'batch' and 2 * CLASS or CLASS
  local score, entry = base, member .. ' ' .. tag
  if not goes_first then
    local tenant = whole(base) .. ':' .. (f[1] or 'default')
    local lowest = redis.call('ZRANGEBYSCORE', fair, '(' .. whole(base), '(' .. whole(base + CLASS), 'WITHSCORES', 'LIMIT', '0', '1')[2]
    score = math.max(tonumber(lowest or base + 1), tonumber(redis.call('ZSCORE', fair .. ':next', tenant) or 0))
    redis.call('ZADD', fair .. ':next', whole(score + 1), tenant)
  end
  redis.call('ZADD', fair, whole(score), entry)
  redis.call('HSET', fair .. ':messages', entry, message)
  redis.call('ZREM', out, member)
end

local waiting = redis.call('LLEN', queue)
if waiting == 0 and redis.call('EXISTS', fair) == 0 then
  redis.call('LPUSH', queue, text .. ALONE)
  redis.call('ZADD', out, whole(now_ms()), ARGV[1])
  return
end
local other = waiting == 1 and redis.call('LINDEX', queue, 0)
if other and string.sub(other, -1) == ALONE then
  local _, its = pcall(cjson.decode, other)
  local headers = type(its) == 'table' and type(its.headers) == 'table' and its.headers or {}
  if headers['handoff-for'] then -- or a stranger has put it there
    local alone = string.sub(other, 1, -2)
    redis.call('LSET', queue, 0, alone)
    place(headers['handoff-for'], its.properties.delivery_tag, alone, headers['handoff-first'])
  end
end
redis.call(is_first and 'RPUSH' or 'LPUSH', queue, text)
place(ARGV[1], ARGV[2], text, is_first)
