-- The fair order of a queue's messages: start-time fair queueing between tenants, in which each
-- message has the cost 1. The sorted set `handoff:fair:QUEUE` has an entry `MEMBER TAG` for each
-- message: its member (`job` or `job/handoff`) and its delivery tag. The lowest score goes first.
-- Each class of priority has its own range of scores, from its base on. Within a class, the score
-- of a message is the larger of the lowest waiting score and its tenant's next score, which then
-- grows by one. So tenants take turns, each in its order of publication. The sorted set
-- `handoff:fair:QUEUE:next` has the next scores and the lowest waiting score of each class. The
-- hash `handoff:fair:QUEUE:messages` has the messages by their entries. Adding a message reads no
-- entry, because a worker wakes a supervisor, and the entries name jobs of others.

local CLASS = 2 ^ 40 -- scores of a class; its scores start again when the queue was empty

local function fair_key(queue)
  return 'handoff:fair:' .. queue
end

-- Forget the next scores of the tenants of a queue without messages.
local function forget_turns_of_empty(fair)
  if redis.call('EXISTS', fair) == 0 then redis.call('DEL', fair .. ':next') end
end

-- Return the lowest waiting score of a class, as text; nil if no message of the class waits. The
-- base itself is the score of the messages that go first, and does not count. Only readers of the
-- queue may read its entries.
local function lowest_in_class(fair, base)
  local from, to = '(' .. integer(base), '(' .. integer(base + CLASS)
  local first = redis.call('ZRANGEBYSCORE', fair, from, to, 'WITHSCORES', 'LIMIT', '0', '1')
  return first[2]
end

-- Return the score of the next message of a tenant, and note the score after it. `turn`: member of
-- the tenant in the class. Workers write these scores, too. So the lowest score must be in the
-- class, and a tenant is at most as many messages behind the lowest score as the queue has.
local function take_turn(fair, base, turn)
  local class, first = integer(base), base + 1
  -- the lowest score after the last take; before the first take, it is that of the first message
  local lowest = number_or(redis.call('ZSCORE', fair .. ':next', class), first)
  if lowest < first or lowest >= base + CLASS then lowest = first end
  local next_score = number_or(redis.call('ZSCORE', fair .. ':next', turn), 0)
  local last = lowest + redis.call('ZCARD', fair)
  local score = math.max(lowest, math.min(next_score, last))
  redis.call('ZADD', fair .. ':next', integer(score + 1), turn)
  return score
end

-- Give a message its place in the order. `message`: {member, tag, text, goes_first}; `goes_first`:
-- before all other messages of its class. A worker may have written a member whose job cannot be
-- read.
local function add_to_order(queue, message)
  local fair, member = fair_key(queue), message.member
  local id = string.match(member, '^[^/]*')
  local tenant, priority = unpack(
    redis.pcall('HMGET', 'handoff:{' .. id .. '}', 'tenant', 'priority'), 1, 2
  )
  local base = priority == 'batch' and 2 * CLASS or CLASS
  local score = base
  if not message.goes_first then
    score = take_turn(fair, base, integer(base) .. ':' .. (tenant or 'default'))
  end
  local entry = member .. ' ' .. message.tag
  redis.call('ZADD', fair, integer(score), entry)
  redis.call('HSET', fair .. ':messages', entry, message.text)
  redis.call('ZREM', 'handoff:out:' .. queue, member)
end

-- Exchange a popped element of a queue's list for the first message of the fair order.
-- `popped_tag`: delivery tag of the element's message.
-- Returns the first message ('': it is the element's own); false if no message has a place.
local function take_next_message(queue, popped_tag)
  local fair = fair_key(queue)
  local entry, score = unpack(redis.call('ZPOPMIN', fair))
  if not entry then return false end
  local member, tag = string.match(entry, '^(%S+) (.+)$')
  local text = redis.call('HGET', fair .. ':messages', entry)
  redis.call('HDEL', fair .. ':messages', entry)
  if not member then return false end -- another program wrote the entry
  -- A tenant whose next score is at most the lowest waiting score needs no entry.
  local base = math.floor(tonumber(score) / CLASS) * CLASS
  local lowest = lowest_in_class(fair, base)
  redis.call(
    'ZREMRANGEBYSCORE', fair .. ':next', integer(base), lowest or '(' .. integer(base + CLASS)
  )
  if lowest then
    redis.call('ZADD', fair .. ':next', lowest, integer(base))
  else
    forget_turns_of_empty(fair)
  end
  redis.call('ZADD', 'handoff:out:' .. queue, integer(now_ms()), member)
  return tag == popped_tag and '' or text
end
