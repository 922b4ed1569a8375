-- Add a message of a job to its queue: it adds one element to the list, and its own place in the
-- fair order of the queue (`parts/fair_order.lua`). A worker that pops any element gets, by
-- `fair_dequeue`, the first message of that order.
-- A message in an empty queue needs no order. Its element ends with ALONE, and has no place until
-- another message comes. Its entry in `handoff:out:QUEUE` stays until the claim, because a worker
-- may have popped the element. In the supervisor's queue it gets no place, and is taken first: a
-- worker that wakes a supervisor may read no element, because it names the job of another.
-- KEYS queue.  ARGV: first (1: before all messages of its class | 0), member (`job` or
-- `job/handoff`), delivery tag, text.
-- Returns nothing
local ALONE = ' '
local queue, is_first = KEYS[1], ARGV[1] == '1'
local added = { member = ARGV[2], tag = ARGV[3], text = ARGV[4], goes_first = is_first }

local waiting = redis.call('LLEN', queue)
if waiting == 0 and redis.call('EXISTS', fair_key(queue)) == 0 then
  redis.call('LPUSH', queue, added.text .. ALONE)
  redis.call('ZADD', 'handoff:out:' .. queue, integer(now_ms()), added.member)
  return
end

-- Return a message that is alone in its queue, in the form of `add_to_order`; nil if the message is
-- long, or if another application or a worker that was taken over has added it.
local function alone_message(element)
  local text = string.sub(element, 1, -1 - #ALONE)
  local is_json, message = pcall(cjson.decode, short(text))
  if not is_json or type(message) ~= 'table' then return nil end
  local headers, properties = message.headers, message.properties
  if type(headers) ~= 'table' or type(properties) ~= 'table' then return nil end
  local member, tag = headers['handoff-for'], properties.delivery_tag
  if type(member) ~= 'string' or type(tag) ~= 'string' then return nil end
  return { member = member, tag = tag, text = text, goes_first = headers['handoff-first'] }
end

-- The order comes first: it reads the jobs, and an error must leave no element without a place.
local other = waiting == 1 and queue ~= 'supervisor' and redis.call('LINDEX', queue, 0)
if other and string.sub(other, -1) == ALONE then
  local alone = alone_message(other)
  if alone then
    redis.call('LSET', queue, 0, alone.text)
    add_to_order(queue, alone)
  end
end
add_to_order(queue, added)
redis.call(is_first and 'RPUSH' or 'LPUSH', queue, added.text)
