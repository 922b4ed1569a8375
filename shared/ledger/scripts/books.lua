-- In front of every script, after the prelude: the books. They are kept at four levels, one tree: a handoff, its job, its tenant's day, the
-- installation's day. Each level is a hash of what is spent (turns, input_tokens, output_tokens, usd) and, above the handoff, of what is set
-- aside (reserved_turns, reserved_tokens, reserved_usd). `usd` is whole micro-dollars; a price of -1 is unknown. A day also has needed_tokens
-- and needed_usd: what a handoff would have needed to begin, where that did not fit any more.

local DAY_MS = 24 * 3600 * 1000
local DAY_KEPT_MS = 3 * DAY_MS -- whatever is in the air at midnight has ended long before that, and yesterday can still be looked at

-- HINCRBY by a number that Lua computed: -0 and 1e+15 are no integers to Redis.
local function add(key, field, n)
  redis.call('HINCRBY', key, field, string.format('%d', n))
end

-- Days since 1970 in UTC, by Redis's clock.
local function today()
  return string.format('%d', math.floor(now_ms() / DAY_MS))
end

-- The books of one day: the tenant's and the installation's.
local function days(job, day)
  local tenant = redis.call('HGET', job, 'tenant') or 'default'
  return 'handoff:day:' .. day .. ':' .. tenant, 'handoff:day:' .. day
end

local function keep_days(tenant, installation)
  redis.call('PEXPIRE', tenant, DAY_KEPT_MS)
  redis.call('PEXPIRE', installation, DAY_KEPT_MS)
end

-- Takes a handoff's reservation back. Returns the worst case that it was for, and its day; nil: there is none.
local function unreserve(job, h)
  local r = redis.call('HMGET', h, 'r_turns', 'r_in', 'r_out', 'r_usd', 'r_day')
  if not r[1] then return nil end
  local tenant, installation = days(job, r[5])
  for _, key in ipairs({ job, tenant, installation }) do
    add(key, 'reserved_turns', -r[1])
    add(key, 'reserved_tokens', -(r[2] + r[3]))
    add(key, 'reserved_usd', -math.max(tonumber(r[4]), 0))
  end
  keep_days(tenant, installation)
  redis.call('HDEL', h, 'r_turns', 'r_in', 'r_out', 'r_usd', 'r_day')
  return { turns = tonumber(r[1]), input = tonumber(r[2]), output = tonumber(r[3]), usd = tonumber(r[4]), cut = true }, r[5]
end

-- A handoff's reservation becomes what was really used, in the books of the day in which it was made. `used` nil: the worst case, because
-- the call was in the air.
local function settle(job, h, used)
  local worst, day = unreserve(job, h)
  used = used or worst
  if not used then return end
  local tenant, installation = days(job, day or today())
  for _, key in ipairs({ h, job, tenant, installation }) do
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
  keep_days(tenant, installation)
end

-- What a level has left for one more call. `limits`: most turns, tokens and usd; 0 or false is no limit.
-- Returns nil (it fits), 'wait' (it may when what others have set aside comes back), or the name of the limit that it can never keep, what it
-- asked of that and what is left.
local function misfit(key, limits, worst)
  if not (limits[1] or limits[2] or limits[3]) then return nil end
  local b = redis.call('HMGET', key, 'turns', 'reserved_turns', 'input_tokens', 'output_tokens', 'reserved_tokens', 'usd', 'reserved_usd')
  local function n(i) return tonumber(b[i] or 0) end
  local asked = {
    { 'max_turns', n(1), n(2), 1 },
    { 'max_tokens', n(3) + n(4), n(5), worst.input + worst.output },
    { 'max_usd', n(6), n(7), worst.usd },
  }
  local waits = nil
  for i, book in ipairs(asked) do
    local name, spent, reserved, more = unpack(book)
    local most = tonumber(limits[i] or 0)
    if most > 0 then
      if more < 0 or spent + more > most then return name, more, most - spent end
      if spent + reserved + more > most then waits = 'wait' end
    end
  end
  return waits
end

-- A call did not fit what a day has left, whatever others give back. If its handoff could not even begin by it, what it asked is noted, and no
-- new job is taken while less than that is left (`days.py`). Of several such calls the smallest counts, as long as it would not fit either;
-- closing roles read what all steps have written, and say nothing of what a job needs to begin.
local function note_need(day, h, name, asked, left)
  local f = redis.call('HMGET', h, 'turns', 'closes')
  if asked < 0 or tonumber(f[1] or 0) > 0 or f[2] then return end
  local field = string.gsub(name, '^max_', 'needed_')
  local known = tonumber(redis.call('HGET', day, field) or 0)
  if known > left then asked = math.min(known, asked) end
  redis.call('HSET', day, field, string.format('%d', asked))
end

-- A job's limits, as far as this handoff may use them: some is kept for those who bring the job to its end.
local function limits_of(job, h)
  local limits = redis.call('HMGET', job, 'max_turns', 'max_tokens', 'max_usd')
  if redis.call('HEXISTS', h, 'closes') == 1 then return limits end
  local kept = redis.call('HMGET', job, 'keep_turns', 'keep_tokens', 'keep_usd')
  for i = 1, 3 do
    if limits[i] and kept[i] then limits[i] = math.max(1, limits[i] - kept[i]) end
  end
  return limits
end

-- Sets the worst case of the next call aside, at every level or at none. Returns nil, or why not: 'wait', or a limit's name and its level.
-- A handoff has one call at a time: what it had set aside before and never used goes back first.
local function reserve(job, h, worst)
  unreserve(job, h)
  local day = today()
  local tenant, installation = days(job, day)
  local caps = redis.call('HMGET', 'handoff:caps', 'tenant_day_tokens', 'tenant_day_usd', 'day_tokens', 'day_usd')
  local tree = {
    { 'handoff', h, { false, false, redis.call('HGET', h, 'max_usd') } },
    { 'job', job, limits_of(job, h) },
    { 'tenant', tenant, { false, caps[1], caps[2] }, is_day = true },
    { 'installation', installation, { false, caps[3], caps[4] }, is_day = true },
  }
  local waits = nil
  for _, level in ipairs(tree) do
    local no, asked, left = misfit(level[2], level[3], worst)
    if no == 'wait' then
      waits = no
    elseif no then
      if level.is_day then note_need(level[2], h, no, asked, left) end
      keep_days(tenant, installation)
      return no, level[1]
    end
  end
  if waits then return waits end
  for _, key in ipairs({ job, tenant, installation }) do
    add(key, 'reserved_turns', 1)
    add(key, 'reserved_tokens', worst.input + worst.output)
    add(key, 'reserved_usd', math.max(worst.usd, 0))
  end
  redis.call('HSET', h, 'r_turns', 1, 'r_in', worst.input, 'r_out', worst.output, 'r_usd', worst.usd, 'r_day', day)
  keep_days(tenant, installation)
  return nil
end
