-- In front of every script: the clock, the journal, who may write, how long things stay.

local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- One event more in the journal; entry n has the stream id n-0, so that a version is a place in it.
local function append(job, event, at)
  local version = redis.call('HINCRBY', job, 'version', 1)
  redis.call('XADD', job .. ':log', version .. '-0', 'e', event, 't', at)
  return version
end

-- After what was appended: version and time of the last event are the journal's tip. Two histories that differ have different tips, also
-- where Redis has come back with older data and others have gone on from there. Returns the version.
local function touch(job, at)
  redis.call('HSET', job, 'tip', at)
  return tonumber(redis.call('HGET', job, 'version') or 0)
end

-- Fields of a job's hash; '' removes one.
local function put(job, fields)
  for name, value in pairs(fields) do
    if value == '' then redis.call('HDEL', job, name) else redis.call('HSET', job, name, value) end
  end
end

-- Whether this claim has no right to write any more: nil, 'lost' (another claim has it, or has ended it) or 'dropped' (nobody wants it).
-- A job that was deleted, or has expired, must not be written to: its hash would come back without anything else of it, and for ever.
local function gone(job, h, fence)
  if redis.call('EXISTS', job) == 0 then return 'dropped' end
  local f = redis.call('HMGET', h, 'fence', 'state')
  if f[2] == 'dropped' then return 'dropped' end
  if f[1] ~= fence or f[2] ~= 'running' then return 'lost' end
  return nil
end

-- A claim ends without a result, through nobody's fault: it does not count, and what it says from now on is refused.
local function give_back(h)
  redis.call('HINCRBY', h, 'claims', -1)
  redis.call('HDEL', h, 'fence')
  redis.call('HSET', h, 'state', 'issued', 'lease', 0)
end

local function is_cancelled(job)
  return redis.call('HGET', job, 'cancelled')
end

-- How long what belongs to a job that is at work must stay: its retention begins at its deadline (Unix ms; 0: it has none).
local function keep_from_now(keep_ms, deadline)
  return tonumber(keep_ms) + math.max(0, tonumber(deadline) - now_ms())
end

-- Never shortens what a key has left. A job's journal and payloads live as long as its hash.
local function stay(job, h, ms)
  for _, key in ipairs({ job, h, job .. ':fetched' }) do
    local left = redis.call('PTTL', key)
    if left ~= -2 and left < ms then
      redis.call('PEXPIRE', key, ms)
      if key == job then
        redis.call('PEXPIRE', job .. ':log', ms)
        redis.call('PEXPIRE', job .. ':blob', ms)
      end
    end
  end
end

local function decoded(text)
  if text == '' then return nil end
  return cjson.decode(text)
end

-- Somebody has looked at a job: its wake-up waits no longer. `queue`: the one whose remembered wake-up that was, if any; those that were
-- sent to it clearly earlier and were not taken are lost.
local function looked_at(id, queue)
  for _, name in ipairs({ 'supervisor', 'submissions' }) do
    local sent = redis.call('ZSCORE', 'handoff:waiting:' .. name, id)
    if sent then
      redis.call('ZREM', 'handoff:waiting:' .. name, id)
      if name == queue and tonumber(sent) > tonumber(redis.call('HGET', 'handoff:taken', name) or 0) then
        redis.call('HSET', 'handoff:taken', name, sent)
      end
    end
  end
end
