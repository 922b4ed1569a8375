-- In front of every script: the clock, the journal, the books.

local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

-- HINCRBY by a number that Lua computed: -0 and 1e+15 are no integers to Redis.
local function add(key, field, n)
  redis.call('HINCRBY', key, field, string.format('%d', n))
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

-- Takes a handoff's reservation back. Returns the worst case that it was for; nil: there is none.
local function unreserve(job, h)
  local r = redis.call('HMGET', h, 'r_turns', 'r_in', 'r_out', 'r_usd')
  if not r[1] then return nil end
  add(job, 'reserved_turns', -r[1])
  add(job, 'reserved_tokens', -(r[2] + r[3]))
  add(job, 'reserved_usd', -math.max(tonumber(r[4]), 0))
  redis.call('HDEL', h, 'r_turns', 'r_in', 'r_out', 'r_usd')
  return { turns = tonumber(r[1]), input = tonumber(r[2]), output = tonumber(r[3]), usd = tonumber(r[4]), cut = true }
end

-- A handoff's reservation becomes what was really used. `used` nil: the worst case, because the call was in the air. A price of -1 is unknown.
local function settle(job, h, used)
  local worst = unreserve(job, h)
  used = used or worst
  if not used then return end
  for _, key in ipairs({ job, h }) do
    add(key, 'turns', used.turns)
    add(key, 'input_tokens', used.input)
    add(key, 'output_tokens', used.output)
    if used.usd >= 0 then add(key, 'usd', used.usd) else redis.call('HSET', key, 'unpriced', 1) end
    if used.cut then -- an upper bound, and told apart
      add(key, 'cut_calls', used.turns)
      add(key, 'cut_tokens', used.input + used.output)
      add(key, 'cut_usd', math.max(used.usd, 0))
    end
  end
end

-- Sets the worst case of the next call aside. Returns nil, or why not: 'wait' (others' reservations may come back) or a limit's name.
-- A handoff has one call at a time: what it had set aside before and never used goes back first.
local function reserve(job, h, worst)
  unreserve(job, h)
  local b = redis.call('HMGET', job, 'max_turns', 'turns', 'reserved_turns',
    'max_tokens', 'input_tokens', 'output_tokens', 'reserved_tokens', 'max_usd', 'usd', 'reserved_usd')
  local function n(i) return tonumber(b[i] or 0) or 0 end
  local books = {
    { 'max_turns', n(1), n(2), n(3), 1 },
    { 'max_tokens', n(4), n(5) + n(6), n(7), worst.input + worst.output },
    { 'max_usd', n(8), n(9), n(10), worst.usd },
  }
  for _, book in ipairs(books) do
    local name, limit, spent, reserved, asked = unpack(book)
    if limit > 0 then
      if asked < 0 or spent + asked > limit then return name end
      if spent + reserved + asked > limit then return 'wait' end
    end
  end
  add(job, 'reserved_turns', 1)
  add(job, 'reserved_tokens', worst.input + worst.output)
  add(job, 'reserved_usd', math.max(worst.usd, 0))
  redis.call('HSET', h, 'r_turns', 1, 'r_in', worst.input, 'r_out', worst.output, 'r_usd', worst.usd)
  return nil
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
