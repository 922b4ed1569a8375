-- Who is there, and which handoffs of these jobs wait in the queue of a specialist whom nobody serves. Reads only.
-- KEYS serving, queues.  ARGV job...  Returns {queues that are served, `queue/job/handoff` of those handoffs}
local serving, queues = KEYS[1], KEYS[2]
local asked, served, names, found = {}, { think = true }, {}, {} -- who serves `think` is a supervisor
for _, job in ipairs(ARGV) do asked[job] = true end
for _, member in ipairs(redis.call('ZRANGEBYSCORE', serving, now_ms(), '+inf')) do
  local queue = string.match(member, '^(.-)/')
  if not served[queue] then names[#names + 1] = queue end
  served[queue] = true
end
for _, queue in ipairs(redis.call('HKEYS', queues)) do
  if #ARGV > 0 and not served[queue] then
    for _, member in ipairs(redis.call('ZRANGE', 'handoff:waiting:' .. queue, 0, -1)) do
      if asked[string.match(member, '^(.-)/')] then found[#found + 1] = queue .. '/' .. member end
    end
  end
end
return { names, found }
