-- An element is popped and its message taken, in one round trip, by who has reason to think that there is one.
-- KEYS queues, the first that has an element counts.  Returns {queue, message, elements left in it, 0}; {queue, element, elements left in it, 1}
-- of an element that has no place of its own any more, or never had one, and may be anything: what is taken for it is for `dequeue`; nothing
-- where there is none
for _, queue in ipairs(KEYS) do
  local frame = redis.call('RPOP', queue)
  if frame then
    local left = redis.call('LLEN', queue)
    -- As kombu writes JSON: what it holds of a user's is in base64, or has its quotes escaped. A pattern that is tried at every place of a
    -- message takes as long as all the rest.
    local _, at = string.find(frame, '"handoff-for": "', 1, true)
    local member = at and string.match(frame, '^([^"\\%s]+)"', at + 1)
    _, at = string.find(frame, '"delivery_tag": "', 1, true)
    local tag = at and string.match(frame, '^([^"\\]+)"', at + 1)
    if not (member and tag and redis.call('ZSCORE', 'handoff:fair:' .. queue, member .. ' ' .. tag)) then return { queue, frame, left, 1 } end
    local message = first_of(queue, tag, member)
    return { queue, message ~= '' and message or frame, left, 0 }
  end
end
return false
