-- Pop elements and take their messages in one round trip, for a worker that expects several.
-- KEYS queues; only the first queue with an element is read.  ARGV: most elements of each queue. No
-- call takes more than a quarter of the elements, so that other processes get their share.
-- Returns {queue, messages, element, elements left in the queue}. `element`: the last popped
-- element if its message has no place in the fair order, else false. The caller passes it to
-- `fair_dequeue`.
-- Returns nothing if all queues are empty
for n, queue in ipairs(KEYS) do
  local messages, element, waiting = {}, false, redis.call('LLEN', queue)
  local most = math.min(tonumber(ARGV[n]), math.ceil(waiting / 4))
  while #messages < most and not element do
    local frame = redis.call('RPOP', queue)
    -- This is kombu's JSON: a user's data is in base64, or has its quotes escaped, so it cannot
    -- match.
    -- A pattern that is tried at each position of a message takes as long as the rest of the
    -- script.
    local _, at = string.find(frame, '"handoff-for": "', 1, true)
    local member = at and string.match(frame, '^([^"\\%s]+)"', at + 1)
    _, at = string.find(frame, '"delivery_tag": "', 1, true)
    local tag = at and string.match(frame, '^([^"\\]+)"', at + 1)
    if member and tag and redis.call('ZSCORE', fair_key(queue), member .. ' ' .. tag) then
      local message = take_next_message(queue, tag)
      messages[#messages + 1] = message ~= '' and message or frame
    else
      element = frame
    end
  end
  if waiting > 0 then return { queue, messages, element, redis.call('LLEN', queue) } end
end
return false
