-- In front of the scripts that keep books, or read them. They are kept at four levels, one tree: a handoff, its job, its tenant's day, the
-- installation's day. A child job has two levels more above it: the handoff of its parent that it does, and the parent. Each level is a hash of what is spent (turns, input_tokens, output_tokens, usd) and, above the handoff, of what is set
-- aside (reserved_turns, reserved_tokens, reserved_usd). `usd` is whole micro-dollars; a price of -1 is unknown. A day also has needed_tokens
-- and needed_usd: what a handoff would have needed to begin, where that did not fit any more.

local DAY_MS = 24 * 3600 * 1000
local DAY_KEPT_MS = 3 * DAY_MS -- whatever is in the air at midnight has ended long before that, and yesterday can still be looked at
local DAY = 'handoff:day:'

-- Fields of a book. A day's, which is there from that day on, is kept for three days after its end.
local function write(key, ...)
  local is_new = redis.call('HSET', key, ...) > 0
  if is_new and string.sub(key, 1, #DAY) == DAY then redis.call('PEXPIRE', key, DAY_MS + DAY_KEPT_MS) end
end

-- One read and one write of each of these books for all that changes in them. A number that Lua computed needs its format: -0 and 1e+15 are
-- no integers.
local function post(keys, changes, is_unpriced)
  local names, written = {}, {}
  for name, n in pairs(changes) do
    if n ~= 0 then names[#names + 1] = name end
  end
  if is_unpriced then names[#names + 1] = 'unpriced' end
  if #names == 0 then return end
  for _, key in ipairs(keys) do
    local known = redis.call('HMGET', key, unpack(names))
    for i, name in ipairs(names) do
      written[2 * i - 1] = name
      written[2 * i] = name == 'unpriced' and '1' or string.format('%d', (known[i] or 0) + changes[name])
    end
    write(key, unpack(written))
  end
end

-- What the books ask of a handoff, read once in a script: its limit, whether it brings the job to its end, and `worst`, the worst case that is
-- set aside for it in the books of `day`; nil: none is.
local parts = {}
local function part_of(h)
  local part = parts[h]
  if not part then
    local f = redis.call('HMGET', h, 'max_usd', 'closes', 'r_turns', 'r_in', 'r_out', 'r_usd', 'r_day')
    part = { max_usd = f[1], closes = f[2], worst = nil, day = f[7] }
    if f[3] then
      part.worst = { turns = tonumber(f[3]), input = tonumber(f[4]), output = tonumber(f[5]), usd = tonumber(f[6]), cut = true }
    end
    parts[h] = part
  end
  return part
end

-- Days since 1970 in UTC, by Redis's clock.
local function today()
  return string.format('%d', math.floor(now_ms() / DAY_MS))
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

-- The books of one day: the tenant's and the installation's.
local function days(job, day)
  return DAY .. day .. ':' .. job_of(job).tenant, DAY .. day
end

-- Where what is set aside for a handoff is written down.
local function set_aside_at(levels, tenant, installation)
  local keys = { tenant, installation }
  for _, level in ipairs(levels) do keys[#keys + 1] = level.job end
  return keys
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
  part_of(h).worst = nil
end

-- Takes a handoff's reservation back, if there is one.
local function unreserve(job, h)
  local part = part_of(h)
  if not part.worst then return end
  post(set_aside_at(levels_of(job, h), days(job, part.day)), given_back(part.worst))
  forget_reservation(h)
end

-- What was used, added to what else changes in a book.
local function spent(used, changes)
  changes.turns, changes.input_tokens, changes.output_tokens, changes.usd = used.turns, used.input, used.output, math.max(used.usd, 0)
  if used.cut then -- an upper bound, and told apart
    changes.cut_calls, changes.cut_tokens, changes.cut_usd = used.turns, used.input + used.output, math.max(used.usd, 0)
  end
  return changes
end

-- A handoff's reservation becomes what was really used, in the books of the day in which it was made. `used` nil: the worst case, because
-- the call was in the air.
local function settle(job, h, used)
  local part = part_of(h)
  local worst = part.worst
  used = used or worst
  if not used then return end
  local levels, is_unpriced = levels_of(job, h), used.usd < 0
  local keys = set_aside_at(levels, days(job, worst and part.day or today()))
  post(keys, spent(used, worst and given_back(worst) or {}), is_unpriced)
  local handoffs = {}
  for i, level in ipairs(levels) do handoffs[i] = level.h end
  post(handoffs, spent(used, {}), is_unpriced)
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
  if asked < 0 or part_of(h).closes or tonumber(redis.call('HGET', h, 'turns') or 0) > 0 then return end
  local field = string.gsub(name, '^max_', 'needed_')
  local known = tonumber(redis.call('HGET', day, field) or 0)
  if known > left then asked = math.min(known, asked) end
  write(day, field, string.format('%d', asked))
end

-- A job's limits, as far as this handoff may use them: some is kept for those who bring the job to its end.
local function limits_of(job, h)
  local f = redis.call('HMGET', job, 'max_turns', 'max_tokens', 'max_usd', 'keep_turns', 'keep_tokens', 'keep_usd')
  local limits = { f[1], f[2], f[3] }
  if not (f[4] or f[5] or f[6]) or part_of(h).closes then return limits end
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
  local levels = levels_of(job, h)
  local tree = { { 'handoff', h, { false, false, part_of(h).max_usd } } }
  for _, level in ipairs(levels) do
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
      return no, level[1]
    end
  end
  if waits then return waits end
  worst.turns = 1
  post(set_aside_at(levels, tenant, installation), set_aside(worst))
  redis.call('HSET', h, 'r_turns', worst.turns, 'r_in', worst.input, 'r_out', worst.output, 'r_usd', worst.usd, 'r_day', day)
  parts[h] = nil -- it is another now
  return nil
end
