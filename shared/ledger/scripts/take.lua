-- An element is popped and its message taken, in one round trip, by who has reason to think that there is one.
-- KEYS queues, the first that has an element counts.  Returns {queue, message, elements left in it}; nothing where there is none

-- Member and delivery tag of what an element holds; nil: it has no place. Both stand there as kombu writes JSON, and what it holds of a user's
-- is in base64 or has its quotes escaped. What others have written is read as what it is.
local function place_of(frame)
  if string.sub(frame, -1) == ' ' then return nil end -- alone in its queue
  local member, tag = string.match(frame, '"handoff%-for": "([^"\\%s]+)"'), string.match(frame, '"delivery_tag": "([^"\\]+)"')
  if member and tag then return member, tag end
  local _, its = pcall(cjson.decode, frame)
  local headers, properties = type(its) == 'table' and its.headers, type(its) == 'table' and its.properties
  if type(headers) ~= 'table' or type(properties) ~= 'table' then return nil end
  member, tag = headers['handoff-for'], properties.delivery_tag
  if type(member) ~= 'string' or type(tag) ~= 'string' or not string.match(member, '^%S') then return nil end
  return member, tag
end

for _, queue in ipairs(KEYS) do
  local frame = redis.call('RPOP', queue)
  if frame then
    local member, tag = place_of(frame)
    local message = member and first_of(queue, tag, member)
    return { queue, message and message ~= '' and message or frame, redis.call('LLEN', queue) }
  end
end
return false
