-- In front of every script: the clock, the journal, who may write, how long things stay.

local said_ms -- it does not go on while a script runs
local function now_ms()
  if not said_ms then
    local t = redis.call('TIME')
    said_ms = t[1] * 1000 + math.floor(t[2] / 1000)
  end
  return said_ms
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

-- Fields of a hash, all at once; '' removes one.
local function put(key, fields)
  local set = {}
  for name, value in pairs(fields) do
    if value == '' then
      redis.call('HDEL', key, name)
    else
      set[#set + 1], set[#set + 2] = name, value
    end
  end
  if #set > 0 then redis.call('HSET', key, unpack(set)) end
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

local function key_of(id)
  return 'handoff:{' .. id .. '}'
end

local PAST_KEPT_MS = 90 * 24 * 3600 * 1000 -- what quotes are drawn from, and held against

-- A list of the newest of something, the newest first.
local function keep_newest(list, text, most, keep_ms)
  redis.call('LPUSH', list, text)
  redis.call('LTRIM', list, 0, most - 1)
  redis.call('PEXPIRE', list, keep_ms)
end

-- The parent of a child job, and the handoff there that it does; nil: it has none, or that is gone. Looked up once in a script.
local aboves = {}
local function above(job)
  local known = aboves[job]
  if not known then
    known = {}
    aboves[job] = known
    local parent = redis.call('HGET', job, 'parent')
    if not parent then return nil end
    local id, handoff = string.match(parent, '^(.-)/(.+)$')
    local outer = key_of(id)
    local h = outer .. ':h:' .. handoff
    if redis.call('EXISTS', outer, h) == 2 then known[1], known[2] = outer, h end
  end
  return known[1], known[2]
end

-- Who cancels a job cancels its children.
local function is_cancelled(job)
  while job do
    if redis.call('HEXISTS', job, 'cancelled') == 1 then return true end
    job = above(job)
  end
  return false
end

-- How long what belongs to a job that is at work must stay: its retention begins at its deadline (Unix ms; 0: it has none).
local function keep_from_now(keep_ms, deadline)
  return tonumber(keep_ms) + math.max(0, tonumber(deadline) - now_ms())
end

-- Never shortens what a key has left. A job's journal and payloads live as long as its hash, and so do its children.
local function stay(job, h, ms)
  for _, key in ipairs({ job, job .. ':fetched', h ~= job and h or nil }) do
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

local function stay_whole(job, ms)
  stay(job, job, ms)
  for child in string.gmatch(redis.call('HGET', job, 'children') or '', '%S+') do stay_whole(key_of(child), ms) end
end

local function decoded(text)
  if text == '' then return nil end
  return cjson.decode(text)
end

-- `member`, a handoff or a wake-up, is to be published to this queue: it waits there, and until it is in it, it is on somebody's hands.
local function send_off(queue, member, at)
  redis.call('ZADD', 'handoff:waiting:' .. queue, at, member)
  redis.call('ZADD', 'handoff:out:' .. queue, at, member)
end

-- Nobody waits for it to come out of this queue any more.
local function forget(queue, member)
  redis.call('ZREM', 'handoff:waiting:' .. queue, member)
  redis.call('ZREM', 'handoff:out:' .. queue, member)
end

-- Somebody has looked at a job: its wake-up waits no longer.
local function looked_at(id)
  forget('supervisor', id)
  forget('submissions', id)
end
