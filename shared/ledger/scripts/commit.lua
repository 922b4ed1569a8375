-- Compare-and-append: the only way in which a decision enters a journal.
-- KEYS job, due, jobs.  ARGV: a JSON object
--   expected, tip (ms of the event that the decision was made on | -1 whatever it is), events[], fields{}, issue[{id, queue, fields{}}],
--   drop[id], keep[id], groups{name: size}, due (ms | -1 none), created, keep_ms,
--   woken_by (the queue whose remembered wake-up led here, or ''), claim (the order of `claim`, for a handoff issued here; may be missing)
-- then pairs of digest and compressed payload.
-- Returns {1, version, Unix ms, what `claim` answers, if anything} or {0, version as it is, 0}.
local job, due, jobs = KEYS[1], KEYS[2], KEYS[3]
local c = cjson.decode(ARGV[1])
local version = tonumber(redis.call('HGET', job, 'version') or 0)
local is_stale = c.tip >= 0 and c.tip ~= tonumber(redis.call('HGET', job, 'tip') or 0)
if version ~= c.expected or is_stale then return { 0, version, 0, false } end
local at = now_ms()
local id = string.match(job, '{(.-)}')

for i = 2, #ARGV, 2 do redis.call('HSETNX', job .. ':blob', ARGV[i], ARGV[i + 1]) end
for _, event in ipairs(c.events) do append(job, event, at) end
version = touch(job, at)
put(job, c.fields)
for name, size in pairs(c.groups) do redis.call('HSET', job, 'g:' .. name, size) end
-- Publishing takes about a millisecond each: who is last of thousands is not late when the first are claimed.
local PUBLISHING_MS = 2
for place, handoff in ipairs(c.issue) do
  local h = job .. ':h:' .. handoff.id
  redis.call('HSET', h, 'state', 'issued', 'issued_at', at)
  for name, value in pairs(handoff.fields) do redis.call('HSET', h, name, value) end
  redis.call('PEXPIRE', h, math.max(c.keep_ms, redis.call('PTTL', job)))
  if handoff.queue then
    redis.call('ZADD', 'handoff:waiting:' .. handoff.queue, at + PUBLISHING_MS * (place - 1), id .. '/' .. handoff.id)
    redis.call('HSETNX', 'handoff:queues', handoff.queue, 0)
  end
end
for _, handoff in ipairs(c.drop) do
  local h = job .. ':h:' .. handoff
  local state = redis.call('HGET', h, 'state')
  if state and state ~= 'done' and state ~= 'dropped' then
    redis.call('HSET', h, 'state', 'dropped')
    redis.call('HDEL', job .. ':blob', 'draft:' .. handoff)
    settle(job, h, nil)
    redis.call('DEL', job .. ':t:' .. handoff)
    redis.call('ZREM', due, id .. '/' .. handoff)
    local f = redis.call('HMGET', h, 'queue', 'group', 'role', 'lane')
    if f[1] then redis.call('ZREM', 'handoff:waiting:' .. f[1], id .. '/' .. handoff) end
    if f[3] then redis.call('ZREM', 'handoff:held:' .. f[3], id .. '/' .. handoff) end
    if f[4] then leave_line(lane_of(f[4]), id .. '/' .. handoff) end
    if f[2] then redis.call('HINCRBY', job, 'g:' .. f[2], -1) end -- or its siblings would wait for it
  end
end

if c.due >= 0 then redis.call('ZADD', due, c.due, id) else redis.call('ZREM', due, id) end
looked_at(id, c.woken_by)
if c.created then
  redis.call('ZADD', jobs, at, id)
  if c.fields.status == 'queued' then redis.call('ZADD', 'handoff:waiting:submissions', at, id) end -- it is announced next
end
stay(job, job, c.keep_ms)
for _, handoff in ipairs(c.keep) do stay(job, job .. ':h:' .. handoff, c.keep_ms) end
return { 1, version, at, c.claim and claim(job, due, c.claim) or false }
