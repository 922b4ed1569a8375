-- Return the notes of a tenant. Reads only. A worker that was taken over may have written any
-- number of entries, and entries of any length.
-- KEYS notes, jobs (only of a reader that may know the jobs of notes).  ARGV: most notes (with more
-- of them, none is returned), most bytes of a path, most bytes of a note (a longer path or note is
-- left out).
-- Returns {path, stored text and job ('': unknown) of each note, in turn}
local notes, jobs = KEYS[1], KEYS[2]
local MAX_JOB_BYTES = 32
local found = {}
if redis.call('HLEN', notes) > tonumber(ARGV[1]) then return found end
for _, path in ipairs(redis.call('HKEYS', notes)) do
  if #path <= tonumber(ARGV[2]) and redis.call('HSTRLEN', notes, path) <= tonumber(ARGV[3]) then
    local is_known = jobs and redis.call('HSTRLEN', jobs, path) <= MAX_JOB_BYTES
    local job = is_known and redis.call('HGET', jobs, path) or ''
    for _, part in ipairs({ path, redis.call('HGET', notes, path), job }) do
      found[#found + 1] = part
    end
  end
end
return found
