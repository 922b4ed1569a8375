-- Append refused commands to the audit streams, unless another supervisor has copied them.
-- KEYS `handoff:refused_commands`, then the stream of each entry.  ARGV: the place of the last
-- copied entry that the sender knows ('' none), entries that each stream keeps at least, number of
-- new fields, then name and value of each field, then the entries.
-- Returns 1 | 0 (another supervisor has copied them)
local state, known, least, count = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local first_entry = 4 + 2 * count
if (redis.call('HGET', state, 'copied') or '') ~= known then return 0 end
redis.call('HSET', state, unpack(ARGV, 4, first_entry - 1))
for n = 2, #KEYS do
  redis.call('XADD', KEYS[n], 'MAXLEN', '~', least, '*', 'e', ARGV[first_entry + n - 2])
end
return 1
