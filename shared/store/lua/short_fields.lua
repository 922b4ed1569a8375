-- Return fields of a hash that workers write: of the progress of a job, or of the state of a
-- handoff. Reads only. A worker that was taken over may have written texts of 500 MB there.
-- KEYS hash.  ARGV: bytes of the longest value, names of the fields.
-- Returns {name and value of each field, in turn}; for a progress also the question of the newest
-- approval. A long text is left out.
local hash = KEYS[1]
local most_bytes = tonumber(ARGV[1])
local fields = {}
local function add(name, value)
  if short(value, most_bytes) then fields[#fields + 1], fields[#fields + 2] = name, value end
end
for n, value in ipairs(redis.call('HMGET', hash, unpack(ARGV, 2))) do add(ARGV[1 + n], value) end
local asked_last = short(redis.call('HGET', hash, 'asked_last'))
if asked_last then
  local question = 'approval:' .. asked_last
  add(question, redis.call('HGET', hash, question))
end
return fields
