-- The end of a handoff: the first writer wins, and the events that follow from the result enter the journal with it.
-- KEYS job, due.  ARGV handoff, fence, keep_ms, silence_ms, result digest, used (JSON or ''), events (JSON list), urgent (1|0),
-- keeps its turns (1|0),
-- then pairs of digest and compressed payload.
-- Returns {'ok', parts of the group still out, version, Unix ms} | {'lost'} | {'dropped'}
local job, due, handoff, fence = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local h, t = job .. ':h:' .. handoff, job .. ':t:' .. handoff
local known = redis.call('HMGET', h, 'state', 'fence', 'group', 'end_version', 'finished_at', 'result')
if known[1] == 'done' and known[2] == fence and known[6] == ARGV[5] then -- said again, because the answer was lost
  local left = known[3] and redis.call('HGET', job, 'g:' .. known[3]) or -1
  return { 'ok', tonumber(left), tonumber(known[4]), tonumber(known[5]) }
end
local why = gone(job, h, fence)
if why then return { why } end

local at, keep = now_ms(), tonumber(ARGV[3])
local id = string.match(job, '{(.-)}')
local used = decoded(ARGV[6])
settle(job, h, used)
even_out(used and used.pace, id .. '/' .. handoff, at)
for i = 10, #ARGV, 2 do redis.call('HSETNX', job .. ':blob', ARGV[i], ARGV[i + 1]) end
redis.call('HSET', h, 'state', 'done', 'result', ARGV[5], 'finished_at', at)
redis.call('HDEL', h, 'lease', 'doing')
redis.call('HDEL', job .. ':blob', 'draft:' .. handoff)
if ARGV[9] == '1' then redis.call('PEXPIRE', t, keep) else redis.call('DEL', t) end
redis.call('ZREM', due, id .. '/' .. handoff)
for _, event in ipairs(cjson.decode(ARGV[7])) do append(job, event, at) end
local version = touch(job, at)
redis.call('HSET', h, 'end_version', version)
local left, group = -1, known[3]
if group then
  left = redis.call('HINCRBY', job, 'g:' .. group, -1)
  -- The chord's body, or for what is urgent the worker, should wake the supervisor now; should that not come, the sweeper does.
  if left <= 0 or ARGV[8] == '1' then redis.call('ZADD', due, 'LT', at + tonumber(ARGV[4]), id) end
end
stay(job, h, keep)
return { 'ok', left, version, at }
