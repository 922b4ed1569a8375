-- Return entries of a list that workers may write. Reads only, or removes the end of the list. A
-- worker that was taken over may have written entries of 500 MB. So each entry is read by itself.
-- KEYS list.  ARGV: position of the first entry and of the last one (from 0; negative: from the
-- end), most bytes of an entry, most bytes of all entries, 1 to remove all entries from the first
-- one (0: they stay).
-- Returns the entries; '' in place of an entry that is too long
local list, most, left = KEYS[1], tonumber(ARGV[3]), tonumber(ARGV[4])
local length = redis.call('LLEN', list)
local function place_of(position)
  local place = tonumber(position)
  return place < 0 and place + length or place
end
local first, last = math.max(0, place_of(ARGV[1])), math.min(length - 1, place_of(ARGV[2]))
local entries = {}
for place = first, last do
  local entry = redis.call('LRANGE', list, integer(place), integer(place))[1]
  if #entry > most or #entry > left then entry = '' end
  left = left - #entry
  entries[#entries + 1] = entry
end
if ARGV[5] == '1' and #entries > 0 then
  if first == 0 then
    redis.call('DEL', list)
  else
    redis.call('LTRIM', list, '0', integer(first - 1))
  end
end
return entries
