-- Elements are popped and their messages taken, in one round trip, by who has reason to think that there are some.
-- KEYS queues, the first that has an element counts.  ARGV for each of them, how many at most; and no more than a quarter of what waits, so that
-- other processes have their part.  Returns {queue, messages, element, elements left in it}; element: the last that was popped, which has no place
-- of its own any more, or never had one, and may be anything: what is taken for it is for `dequeue`, and false where there is none. Nothing where
-- no queue has any
for n, queue in ipairs(KEYS) do
  local messages, element, waiting = {}, false, redis.call('LLEN', queue)
  local most = math.min(tonumber(ARGV[n]), math.ceil(waiting / 4))
  while #messages < most and not element do
    local frame = redis.call('RPOP', queue)
    -- As kombu writes JSON: what it holds of a user's is in base64, or has its quotes escaped. A pattern that is tried at every place of a
    -- message takes as long as all the rest.
    local _, at = string.find(frame, '"handoff-for": "', 1, true)
    local member = at and string.match(frame, '^([^"\\%s]+)"', at + 1)
    _, at = string.find(frame, '"delivery_tag": "', 1, true)
    local tag = at and string.match(frame, '^([^"\\]+)"', at + 1)
    if member and tag and redis.call('ZSCORE', 'handoff:fair:' .. queue, member .. ' ' .. tag) then
      local message = first_of(queue, tag, member)
      messages[#messages + 1] = message ~= '' and message or frame
    else
      element = frame
    end
  end
  if waiting > 0 then return { queue, messages, element, redis.call('LLEN', queue) } end
end
return false
