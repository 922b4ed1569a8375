-- The fair order of a queue's messages: start-time fair queueing between tenants, in which each
-- message has the cost 1. The sorted set `handoff:fair:QUEUE` has an entry `MEMBER TAG` for each
-- message: its member (`job` or `job/handoff`) and its delivery tag. The lowest score goes first.
-- Each class of priority has its own range of scores, from its base on. Within a class, the score
-- of a message is the larger of the lowest waiting score and its tenant's next score, which then
-- grows by one. So tenants take turns, each in its order of publication. The sorted set
-- `handoff:fair:QUEUE:next` has the next scores, and the hash `handoff:fair:QUEUE:messages` has the
-- messages by their entries.

local CLASS = 2 ^ 40 -- scores of a class; its scores start again when the queue was empty

local function fair_key(queue)
  return 'handoff:fair:' .. queue
end

-- Return the lowest waiting score of a class, as text; nil if no message of the class waits. The
-- base itself is the score of the messages that go first, and does not count.
local function lowest_in_class(fair, base)
  local from, to = '(' .. integer(base), '(' .. integer(base + CLASS)
  local first = redis.call('ZRANGEBYSCORE', fair, from, to, 'WITHSCORES', 'LIMIT', '0', '1')
  return first[2]
end

-- Return the base of the class of a message, and the name of its tenant in `:next`. Each job is
-- read once in a script. A worker may have written a member whose job cannot be read.
local order_read = {}
local function class_and_tenant(member)
  local id = string.match(member, '^[^/]*')
  local known = order_read[id]
  if not known then
    local tenant, priority = unpack(
      redis.pcall('HMGET', 'handoff:{' .. id .. '}', 'tenant', 'priority'), 1, 2
    )
    local base = priority == 'batch' and 2 * CLASS or CLASS
    known = { base = base, tenant = integer(base) .. ':' .. (tenant or 'default') }
    order_read[id] = known
  end
  return known.base, known.tenant
end

-- Give messages their places in the order. `added`: a list of {member, tag, text, goes_first};
-- `goes_first`: before all other messages of its class.
local function add_to_order(queue, added)
  local fair = fair_key(queue)
  local lowest, next_scores = {}, {}

  local function score_of(base, tenant)
    if not lowest[base] then lowest[base] = tonumber(lowest_in_class(fair, base) or base + 1) end
    if not next_scores[tenant] then
      next_scores[tenant] = tonumber(redis.call('ZSCORE', fair .. ':next', tenant) or 0)
    end
    local score = math.max(lowest[base], next_scores[tenant])
    next_scores[tenant] = score + 1
    return score
  end

  local places, messages, members = {}, {}, {}
  for n, message in ipairs(added) do
    local base, tenant = class_and_tenant(message.member)
    local entry = message.member .. ' ' .. message.tag
    local score = message.goes_first and base or score_of(base, tenant)
    places[2 * n - 1], places[2 * n] = integer(score), entry
    messages[2 * n - 1], messages[2 * n] = entry, message.text
    members[n] = message.member
  end
  redis.call('ZADD', fair, unpack(places))
  redis.call('HSET', fair .. ':messages', unpack(messages))
  redis.call('ZREM', 'handoff:out:' .. queue, unpack(members))
  local turns = {}
  for tenant, score in pairs(next_scores) do
    turns[#turns + 1], turns[#turns + 2] = integer(score), tenant
  end
  if #turns > 0 then redis.call('ZADD', fair .. ':next', unpack(turns)) end
end

-- Exchange a popped element of a queue's list for the first message of the fair order.
-- `popped_tag`: delivery tag of the element's message.
-- Returns the first message ('': it is the element's own); false if no message has a place.
local function take_first(queue, popped_tag)
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
  if not lowest and redis.call('EXISTS', fair) == 0 then redis.call('DEL', fair .. ':next') end
  redis.call('ZADD', 'handoff:out:' .. queue, integer(now_ms()), member)
  return tag == popped_tag and '' or text
end
