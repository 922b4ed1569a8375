-- Return facts of a job from its progress. Reads only. A worker that was taken over may have
-- written texts of 500 MB there.
-- KEYS progress.  ARGV: names of the facts.
-- Returns {name and value of each fact, in turn}, and the question of the newest approval. A long
-- text is left out.
local progress = KEYS[1]
local facts = {}
local function add(name, value)
  if short(value) then facts[#facts + 1], facts[#facts + 2] = name, value end
end
for n, value in ipairs(redis.call('HMGET', progress, unpack(ARGV))) do add(ARGV[n], value) end
local asked_last = short(redis.call('HGET', progress, 'asked_last'))
if asked_last then
  local question = 'approval:' .. asked_last
  add(question, redis.call('HGET', progress, question))
end
return facts
