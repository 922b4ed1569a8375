-- In front of every script: the clock, the journal, who may write, how long things stay.

-- A number that Lua has computed, as Redis takes it for an integer: -0 and 1e+15 are none, and redis.call takes its time for numbers.
local function whole(number)
  return string.format('%d', number)
end

-- A stored figure of what is only statistics; `otherwise` where the text is no finite number: garbage there must stop no job.
local function figure(text, otherwise)
  local number = tonumber(text)
  if not number or number ~= number or math.abs(number) > 2 ^ 53 then return otherwise end
  return number
end

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
-- `all`: the events stand there from the place `from` on, and are `count`.
local function append(job, version, all, from, count, at, fields)
  local log, now, last = job .. ':log', whole(at), version + count
  for n = 1, count do redis.call('XADD', log, whole(version + n) .. '-0', 'e', all[from + n - 1], 't', now) end
  fields.version, fields.tip = whole(last), now
  put(job, fields)
  return last
end

-- Pairs of digest and compressed payload, from this place of `all` on: what is there already is the same.
local MOST_AT_ONCE = 1000 -- values in one command: Lua's stack has room for some thousands
local function keep_payloads(job, all, from)
  for first = from, #all, MOST_AT_ONCE do
    redis.call('HSET', job .. ':blob', unpack(all, first, math.min(first + MOST_AT_ONCE - 1, #all)))
  end
end

-- What is asked of a job whatever is done, as it is when it is first asked for in a script: its version (nil: there is no such job), whether it
-- was cancelled, its parent (`job/handoff`), its tenant. Read once: what `commit` changes of them, nobody has asked for before in the same script,
-- and of a version it is only asked whether there is one.
local jobs_read = {}
local function job_of(job)
  local known = jobs_read[job]
  if not known then
    local f = redis.call('HMGET', job, 'version', 'cancelled', 'parent', 'tenant')
    known = { version = tonumber(f[1]), cancelled = f[2], parent = f[3], tenant = f[4] or 'default' }
    jobs_read[job] = known
  end
  return known
end

-- Whether this claim has no right to write any more: nil, 'lost' (another claim has it, or has ended it) or 'dropped' (nobody wants it).
-- `version`: of the job, `f`: fence and state of its handoff, as they are. A job that was deleted, or has expired, must not be written to:
-- its hash would come back without anything else of it, and for ever.
local function gone(version, f, fence)
  if not version or f[2] == 'dropped' then return 'dropped' end
  if f[1] ~= fence or f[2] ~= 'running' then return 'lost' end
  return nil
end

-- A claim is over without a result: `stints` of the handoff's hash says who had it, from when until when (Unix ms), and how it ended: lost |
-- back (handed back) | parked | held. A line each, the newest last.
local MOST_STINTS = 20
local function note_stint(h, until_ms, how)
  local f = redis.call('HMGET', h, 'claimed_at', 'worker', 'stints')
  if not f[1] then return end
  local lines = {}
  for line in string.gmatch(f[3] or '', '[^\n]+') do lines[#lines + 1] = line end
  lines[#lines + 1] = table.concat({ f[1], until_ms, how, f[2] or '' }, ' ')
  redis.call('HSET', h, 'stints', table.concat(lines, '\n', math.max(1, #lines - MOST_STINTS + 1)))
  redis.call('HDEL', h, 'claimed_at')
end

-- A claim ends without a result, through nobody's fault: it does not count, and what it says from now on is refused.
local function give_back(h, how)
  note_stint(h, whole(now_ms()), how)
  redis.call('HINCRBY', h, 'claims', '-1')
  redis.call('HDEL', h, 'fence')
  redis.call('HSET', h, 'state', 'issued', 'lease', '0')
end

-- A claim is over because its process is, or is as good as that: how many were lost so. It was heard of last at its last sign of life.
local function count_lost(h)
  redis.call('HINCRBY', h, 'lost_claims', '1')
  note_stint(h, redis.call('HGET', h, 'beat') or whole(now_ms()), 'lost')
end

local function key_of(id)
  return 'handoff:{' .. id .. '}'
end

-- Whether a job waits for a person: an open one that asks for a decision, or the newest question of which has no answer.
local function waits_for_person(status, asks, asked_last, job)
  if status ~= 'queued' and status ~= 'running' then return false end
  if asks and asks ~= '' then return true end
  return asked_last and redis.call('HEXISTS', job, 'approval:' .. asked_last) == 1
end

local function id_of(job)
  return string.sub(job, #'handoff:{' + 1, -2)
end

local PAST_KEPT_MS = 90 * 24 * 3600 * 1000 -- what quotes are drawn from, and held against

-- A list of the newest of something, the newest first.
local function keep_newest(list, text, most, keep_ms)
  local length = redis.pcall('LPUSH', list, text)
  if type(length) == 'table' then -- the key holds something else than a list: the list begins anew
    redis.call('DEL', list)
    length = redis.call('LPUSH', list, text)
  end
  if length > most then redis.call('LTRIM', list, '0', most - 1) end
  redis.call('PEXPIRE', list, whole(keep_ms))
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

-- How many ms keys have left, asked once; -2: there is no such key. Who prolongs never shortens, and returns whether that was less.
local times_left = {}
local function left_of(key)
  times_left[key] = times_left[key] or redis.call('PTTL', key)
  return times_left[key]
end

local function prolong(key, ms)
  local left = left_of(key)
  local is_short = left ~= -2 and left < ms
  if is_short then
    redis.call('PEXPIRE', key, whole(ms))
    times_left[key] = ms
  end
  return is_short
end

-- A job, and one handoff of it, if any. Journal and payloads live as long as the job's hash.
local function stay(job, h, ms)
  if prolong(job, ms) then
    redis.call('PEXPIRE', job .. ':log', whole(ms))
    redis.call('PEXPIRE', job .. ':blob', whole(ms))
  end
  if h then prolong(h, ms) end
end

-- A job with its children, and theirs, and the pages that were fetched for them, which claims prolong, too.
local function stay_whole(job, children, ms)
  stay(job, nil, ms)
  prolong(job .. ':fetched', ms)
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

-- Somebody has looked at a job, whose status was this: its wake-up waits no longer. Only one that nobody has begun may be announced.
local function looked_at(id, status)
  forget('supervisor', id)
  if not status or status == 'queued' then forget('submissions', id) end
end
