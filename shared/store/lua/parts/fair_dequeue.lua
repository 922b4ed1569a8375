-- Part of the scripts that exchange a popped element of a queue's list for the first message of the
-- queue's fair order. A process of a version without the order may have added the element without a
-- place in it. If a handoff still needs the message of such an element, the sweeper publishes it
-- again.
-- `popped_tag`, `popped_member`: delivery tag of the element's message, and its member.
-- Returns the first message ('': it is the element's own); false if no message has a place.
local function first_of(queue, popped_tag, popped_member)
  local fair, CLASS = 'handoff:fair:' .. queue, 2 ^ 40
  local taken = redis.call('ZPOPMIN', fair)
  if #taken == 0 then return false end
  local entry = taken[1]
  local member, tag = string.match(entry, '^(%S+) (.+)$')
  local text = redis.call('HGET', fair .. ':messages', entry)
  redis.call('HDEL', fair .. ':messages', entry)
  if not member then return false end -- another program wrote the entry
  -- A tenant whose next score is at most the lowest waiting score needs no entry.
  local base = math.floor(tonumber(taken[2]) / CLASS) * CLASS
  local from, to = whole(base), whole(base + CLASS)
  local lowest = redis.call(
    'ZRANGEBYSCORE', fair, '(' .. from, '(' .. to, 'WITHSCORES', 'LIMIT', '0', '1'
  )[2]
  redis.call('ZREMRANGEBYSCORE', fair .. ':next', from, lowest or '(' .. to)
  if not lowest and redis.call('EXISTS', fair) == 0 then redis.call('DEL', fair .. ':next') end
  local out, at = 'handoff:out:' .. queue, whole(now_ms())
  redis.call('ZADD', out, at, member)
  if tag == popped_tag then return '' end
  local has_place = redis.call('ZSCORE', fair, popped_member .. ' ' .. popped_tag)
  if not has_place and redis.call('ZSCORE', 'handoff:waiting:' .. queue, popped_member) then
    redis.call('ZADD', out, 'NX', at, popped_member)
  end
  return text
end
