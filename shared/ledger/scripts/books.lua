-- In front of every script, after the prelude: the books. They are kept at four levels, one tree: a handoff, its job, its tenant's day, the
-- installation's day. A child job has two levels more above it: the handoff of its parent that it does, and the parent. Each level is a hash of what is spent (turns, input_tokens, output_tokens, usd) and, above the handoff, of what is set
-- aside (reserved_turns, reserved_tokens, reserved_usd). `usd` is whole micro-dollars; a price of -1 is unknown. A day also has needed_tokens
-- and needed_usd: what a handoff would have needed to begin, where that did not fit any more.

local DAY_MS = 24 * 3600 * 1000
local DAY_KEPT_MS = 3 * DAY_MS -- whatever is in the air at midnight has ended long before that, and yesterday can still be looked at

-- One read and one write of a book for all that changes in it. A number that Lua computed needs its format: -0 and 1e+15 are no integers.
local function post(key, changes)
  local names, written = {}, {}
  for name, n in pairs(changes) do
    if n ~= 0 then names[#names + 1] = name end
  end
  if #names == 0 then return end
  for i, known in ipairs(redis.call('HMGET', key, unpack(names))) do
    written[#written + 1] = names[i]
    written[#written + 1] = string.format('%d', tonumber(known or 0) + changes[names[i]])
  end
  redis.call('HSET', key, unpack(written))
end

-- Days since 1970 in UTC, by Redis's clock.
local function today()
  return string.format('%d', math.floor(now_ms() / DAY_MS))
end

-- The books of one day: the tenant's and the installation's.
local tenants = {}
local function days(job, day)
  local tenant = tenants[job] or redis.call('HGET', job, 'tenant') or 'default'
  tenants[job] = tenant
  return 'handoff:day:' .. day .. ':' .. tenant, 'handoff:day:' .. day
end

local function keep_days(tenant, installation)
  redis.call('PEXPIRE', tenant, DAY_KEPT_MS)
  redis.call('PEXPIRE', installation, DAY_KEPT_MS)
end

-- A handoff and its job; then the parent's handoff that this job does, and the parent, and so on up.
local function levels_of(job, h)
  local levels = {}
  while job do
    levels[#levels + 1] = { job = job, h = h }
    job, h = above(job)
  end
  return levels
end

-- Where what is set aside for a handoff is written down.
local function set_aside_at(job, h, tenant, installation)
  local keys = { tenant, installation }
  for _, level in ipairs(levels_of(job, h)) do keys[#keys + 1] = level.job end
  return keys
end

-- The worst case that is set aside for a handoff, and the day in whose books; nil: none is.
local function reservation_of(h)
  local r = redis.call('HMGET', h, 'r_turns', 'r_in', 'r_out', 'r_usd', 'r_day')
  if not r[1] then return nil end
  return { turns = tonumber(r[1]), input = tonumber(r[2]), output = tonumber(r[3]), usd = tonumber(r[4]), cut = true }, r[5]
end

-- What changes in a book when a call's worst case is set aside.
local function set_aside(worst)
  return { reserved_turns = worst.turns, reserved_tokens = worst.input + worst.output, reserved_usd = math.max(worst.usd, 0) }
end

-- The same when it comes back.
local function given_back(worst)
  local changes = set_aside(worst)
  for name, n in pairs(changes) do changes[name] = -n end
  return changes
end

local function forget_reservation(h)
  redis.call('HDEL', h, 'r_turns', 'r_in', 'r_out', 'r_usd', 'r_day')
end

-- Takes a handoff's reservation back, if there is one.
local function unreserve(job, h)
  local worst, day = reservation_of(h)
  if not worst then return end
  local tenant, installation = days(job, day)
  for _, key in ipairs(set_aside_at(job, h, tenant, installation)) do post(key, given_back(worst)) end
  keep_days(tenant, installation)
  forget_reservation(h)
end

-- What was used, into a book, with what else changes there.
local function spend(key, used, changes)
  changes.turns, changes.input_tokens, changes.output_tokens = used.turns, used.input, used.output
  if used.usd >= 0 then changes.usd = used.usd else redis.call('HSET', key, 'unpriced', 1) end
  if used.cut then -- an upper bound, and told apart
    changes.cut_calls, changes.cut_tokens, changes.cut_usd = used.turns, used.input + used.output, math.max(used.usd, 0)
  end
  post(key, changes)
end

-- A handoff's reservation becomes what was really used, in the books of the day in which it was made. `used` nil: the worst case, because
-- the call was in the air.
local function settle(job, h, used)
  local worst, day = reservation_of(h)
  used = used or worst
  if not used then return end
  local tenant, installation = days(job, day or today())
  for _, key in ipairs(set_aside_at(job, h, tenant, installation)) do spend(key, used, worst and given_back(worst) or {}) end
  for _, level in ipairs(levels_of(job, h)) do spend(level.h, used, {}) end
  keep_days(tenant, installation)
  if worst then forget_reservation(h) end
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
  local f = redis.call('HMGET', job, 'max_turns', 'max_tokens', 'max_usd', 'keep_turns', 'keep_tokens', 'keep_usd')
  local limits = { f[1], f[2], f[3] }
  if not (f[4] or f[5] or f[6]) or redis.call('HEXISTS', h, 'closes') == 1 then return limits end
  for i = 1, 3 do
    if limits[i] and f[i + 3] then limits[i] = math.max(1, limits[i] - f[i + 3]) end
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
  local tree = { { 'handoff', h, { false, false, redis.call('HGET', h, 'max_usd') } } }
  for _, level in ipairs(levels_of(job, h)) do
    tree[#tree + 1] = { level.job == job and 'job' or 'above', level.job, limits_of(level.job, level.h) }
  end
  tree[#tree + 1] = { 'tenant', tenant, { false, caps[1], caps[2] }, is_day = true }
  tree[#tree + 1] = { 'installation', installation, { false, caps[3], caps[4] }, is_day = true }
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
  worst.turns = 1
  for _, key in ipairs(set_aside_at(job, h, tenant, installation)) do post(key, set_aside(worst)) end
  redis.call('HSET', h, 'r_turns', worst.turns, 'r_in', worst.input, 'r_out', worst.output, 'r_usd', worst.usd, 'r_day', day)
  keep_days(tenant, installation)
  return nil
end
