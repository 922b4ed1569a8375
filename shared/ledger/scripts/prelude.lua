-- In front of every script: the clock, the journal, who may write, how long things stay.

local said_ms -- it does not go on while a script runs
local function now_ms()
  if not said_ms then
    local t = redis.call('TIME')
    said_ms = t[1] * 1000 + math.floor(t[2] / 1000)
  end
  return said_ms
end

-- Fields of a hash, all at once; '' removes one.
local function put(key, fields)
  local set, removed = {}, {}
  for name, value in pairs(fields) do
    if value == '' then
      removed[#removed + 1] = name
    else
      set[#set + 1], set[#set + 2] = name, value
    end
  end
  if #set > 0 then redis.call('HSET', key, unpack(set)) end
  if #removed > 0 then redis.call('HDEL', key, unpack(removed)) end
end

-- Events more in the journal that is at `version`, and what else changes in the job's hash with them. Entry n has the stream id n-0, so that a
-- version is a place in it. Version and time of the last event are the journal's tip. Two histories that differ have different tips, also where
-- Redis has come back with older data and others have gone on from there. Returns the version.
local function append(job, version, events, at, fields)
  for n, event in ipairs(events) do
    redis.call('XADD', job .. ':log', version + n .. '-0', 'e', event, 't', at)
  end
  fields.version, fields.tip = version + #events, at
  put(job, fields)
  return fields.version
end

-- What is asked of a job whatever is done, as it is when it is first asked for in a script: its version (nil: there is no such job), whether it
-- was cancelled, its parent (`job/handoff`), its tenant, its tally. Read once: `commit`, which changes them, asks only
-- afterwards, and nobody asks again behind an `append`.
local jobs_read = {}
local function job_of(job)
  local known = jobs_read[job]
  if not known then
    local f = redis.call('HMGET', job, 'version', 'cancelled', 'parent', 'tenant', 'tally')
    known = { version = tonumber(f[1]), cancelled = f[2], parent = f[3], tenant = f[4] or 'default', tally = f[5] }
    jobs_read[job] = known
  end
  return known
end

-- Whether this claim has no right to write any more: nil, 'lost' (another claim has it, or has ended it) or 'dropped' (nobody wants it).
-- `f`: fence and state of its handoff, as they are. A job that was deleted, or has expired, must not be written to: its hash would come back
-- without anything else of it, and for ever.
local function gone(job, f, fence)
  if not job_of(job).version or f[2] == 'dropped' then return 'dropped' end
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
  if redis.call('LPUSH', list, text) > most then redis.call('LTRIM', list, 0, most - 1) end
  redis.call('PEXPIRE', list, keep_ms)
end

-- The parent of a child job, and the handoff there that it does; nil: it has none, or that is gone. Looked up once in a script.
local function above(job)
  local known = job_of(job)
  if known.parent then
    local id, handoff = string.match(known.parent, '^(.-)/(.+)$')
    local outer = key_of(id)
    local h = outer .. ':h:' .. handoff
    if redis.call('EXISTS', outer, h) == 2 then known.outer, known.outer_h = outer, h end
    known.parent = nil
  end
  return known.outer, known.outer_h
end

-- Who cancels a job cancels its children.
local function is_cancelled(job)
  while job do
    if job_of(job).cancelled then return true end
    job = above(job)
  end
  return false
end

-- How long what belongs to a job that is at work must stay: its retention begins at its deadline (Unix ms; 0: it has none).
local function keep_from_now(keep_ms, deadline)
  return tonumber(keep_ms) + math.max(0, tonumber(deadline) - now_ms())
end

-- Never shortens what a key has left. Returns whether that was less.
local function prolong(key, ms)
  local left = redis.call('PTTL', key)
  local is_short = left ~= -2 and left < ms
  if is_short then redis.call('PEXPIRE', key, ms) end
  return is_short
end

-- A job, and one handoff of it, if any. Journal and payloads live as long as the job's hash.
local function stay(job, h, ms)
  if prolong(job, ms) then
    redis.call('PEXPIRE', job .. ':log', ms)
    redis.call('PEXPIRE', job .. ':blob', ms)
  end
  prolong(job .. ':fetched', ms)
  if h then prolong(h, ms) end
end

-- A job with its children, and theirs.
local function stay_whole(job, children, ms)
  stay(job, nil, ms)
  for child in string.gmatch(children or '', '%S+') do
    local key = key_of(child)
    stay_whole(key, redis.call('HGET', key, 'children'), ms)
  end
end

local function decoded(text)
  if text == '' then return nil end
  return cjson.decode(text)
end

-- Handoffs or a wake-up are to be published to this queue: they wait there, and until they are in it, they are on somebody's hands.
-- `entries`: since when (Unix ms) and member, in turn.
local MOST_AT_ONCE = 1000 -- values in one command: Lua's stack has room for some thousands
local function send_off(queue, entries)
  for first = 1, #entries, MOST_AT_ONCE do
    local last = math.min(first + MOST_AT_ONCE - 1, #entries)
    redis.call('ZADD', 'handoff:waiting:' .. queue, unpack(entries, first, last))
    redis.call('ZADD', 'handoff:out:' .. queue, unpack(entries, first, last))
  end
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
