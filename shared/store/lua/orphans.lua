-- Messages without a job go from a queue that nobody serves. One that stands elsewhere by now stays.
-- KEYS queue.  ARGV first and last place of a piece (-1: the next to be taken), then places in it (1: the first), messages, and their entries
-- in the fair order ('' none), in turn.
-- Returns how many went
local queue, first = KEYS[1], tonumber(ARGV[1])
local GONE = '' -- no message is that
local piece, removed = redis.call('LRANGE', queue, first, ARGV[2]), 0
local fair = 'handoff:fair:' .. queue
for i = 3, #ARGV, 3 do
  local place = tonumber(ARGV[i])
  if piece[place] == ARGV[i + 1] then
    redis.call('LSET', queue, first + place - 1, GONE)
    redis.call('ZREM', fair, ARGV[i + 2])
    redis.call('HDEL', fair .. ':messages', ARGV[i + 2])
    removed = removed + 1
  end
end
if removed > 0 then redis.call('LREM', queue, -removed, GONE) end -- all in one walk
if redis.call('EXISTS', fair) == 0 then redis.call('DEL', fair .. ':next') end
return removed
