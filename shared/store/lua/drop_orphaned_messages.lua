-- Drop messages without a job from an unserved queue. A message that is no longer at its position
-- stays.
-- KEYS queue.  ARGV: first and last position of a piece (-1: the next message to be taken), then
-- for each message: position in the piece (1: the first), text, entry in the fair order ('' none).
-- Returns the number of dropped messages
local queue, first = KEYS[1], tonumber(ARGV[1])
local GONE = '' -- no message is empty
local piece, removed = redis.call('LRANGE', queue, first, ARGV[2]), 0
local fair = fair_key(queue)
for i = 3, #ARGV, 3 do
  local place = tonumber(ARGV[i])
  if piece[place] == ARGV[i + 1] then
    redis.call('LSET', queue, first + place - 1, GONE)
    redis.call('ZREM', fair, ARGV[i + 2])
    redis.call('HDEL', fair .. ':messages', ARGV[i + 2])
    removed = removed + 1
  end
end
if removed > 0 then redis.call('LREM', queue, -removed, GONE) end -- one walk for all
forget_turns_of_empty(fair)
return removed
