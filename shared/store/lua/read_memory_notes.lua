-- Return the notes of a tenant. Reads only. A worker that was taken over may have written any
-- number of entries, and entries of any length.
-- KEYS notes.  ARGV: most notes (with more of them, none is returned), most bytes of a path, most
-- bytes of a note (a longer path or note is left out).
-- Returns {path and stored text of each note, in turn}
local notes = KEYS[1]
local found = {}
if redis.call('HLEN', notes) > tonumber(ARGV[1]) then return found end
for _, path in ipairs(redis.call('HKEYS', notes)) do
  if #path <= tonumber(ARGV[2]) and redis.call('HSTRLEN', notes, path) <= tonumber(ARGV[3]) then
    found[#found + 1], found[#found + 2] = path, redis.call('HGET', notes, path)
  end
end
return found
