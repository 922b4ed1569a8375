-- Return members of sorted sets that workers write. Reads only.
-- KEYS sorted sets.  ARGV: for each set the lowest score, the highest score, and most members.
-- Returns the members of each set; a long member is left out
local lists = {}
for n, set in ipairs(KEYS) do
  local min, max, most = unpack(ARGV, 3 * n - 2, 3 * n)
  lists[n] = short_members(set, min, max, tonumber(most))
end
return lists
