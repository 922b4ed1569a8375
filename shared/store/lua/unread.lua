-- A message came that this process cannot read. One that the store has issued was written by another version: it is left to whoever knows it,
-- for a while, and then to a person. Its letter is kept in the same step: held without one, nobody would know of it.
-- KEYS job, due, dead.  ARGV handoff, digest of the message, patience_ms, the letter, most letters, how long they are kept (s).
-- Returns 'unknown' (not issued) | 'over' (nobody waits for it) | 'left' (the sweeper publishes it again) | 'dead' (nobody does, until `retry`)
local job, due, handoff = KEYS[1], KEYS[2], ARGV[1]
local h, member = job .. ':h:' .. handoff, id_of(job) .. '/' .. handoff
local f = redis.call('HMGET', h, 'state', 'digest', 'queue', 'unread')
if f[2] ~= ARGV[2] or redis.call('EXISTS', job) == 0 then return 'unknown' end
if f[1] ~= 'issued' then return 'over' end
local at = now_ms()
if not f[4] then redis.call('HSET', h, 'unread', at) end
if at - (f[4] or at) < tonumber(ARGV[3]) then return 'left' end
redis.call('HSET', h, 'held', 1)
redis.call('HDEL', h, 'lost', 'unread')
redis.call('ZREM', due, member)
if f[3] then forget(f[3], member) end
keep_newest(KEYS[3], ARGV[4], tonumber(ARGV[5]), 1000 * ARGV[6])
return 'dead'
