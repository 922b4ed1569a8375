-- Part of the scripts that keep or read the budget accounts. There are five levels, as in `Level`
-- of `types/errors.py`: a handoff, its job, the jobs above a child job, the tenant's day, and the
-- installation's day. Each budget is a hash with the spent amounts (turns, input_tokens,
-- output_tokens, usd). Jobs and days also have the reserved amounts (reserved_turns,
-- reserved_tokens, reserved_usd). The parent's handoff that a child job does has spent amounts
-- only. `usd` is whole micro-dollars; a price of -1 is unknown. A day also has needed_tokens and
-- needed_usd: the amount that a refused handoff needed to begin.

local DAY_MS = 24 * 3600 * 1000
local DAY_KEPT_MS = 3 * DAY_MS -- after the end of the day; a call at midnight ends long before that
local MONTH_KEPT_MS = 70 * DAY_MS -- from the first cost of the month
local DAY = 'handoff:day:'
local SPENDING = 'handoff:spending:'
local MOST_SPENDING_FIELDS = 5000 -- of one day: about 400 kB

-- The fields of a handoff's hash with its reservation: the upper bound of the call, and the day that
-- holds the reservation.
local RESERVATION = { 'r_turns', 'r_in', 'r_out', 'r_usd', 'r_day' }

-- Reservations of handoffs; false if there is none. Redis is read once in a script, or not at all
-- if the caller has the fields and passes them to `know_reservation`, in the order of RESERVATION.
-- A process of an older version may have stored a reservation without the newest amounts: they
-- are 0.
local reservations = {}
local function know_reservation(h, turns, input, output, usd, day)
  local function amount(text)
    return tonumber(text or 0)
  end
  reservations[h] = turns and { turns = amount(turns), input = amount(input), output = amount(output), usd = amount(usd), cut = true, day = day }
  return reservations[h]
end

local function reservation_of(h)
  if reservations[h] ~= nil then return reservations[h] end
  return know_reservation(h, unpack(redis.call('HMGET', h, unpack(RESERVATION))))
end

-- Return the number of today in days since 1970 (UTC), by Redis's clock.
local function today()
  return string.format('%d', math.floor(now_ms() / DAY_MS))
end

-- Return the pairs of job and handoff that a call is charged to, the innermost first. Each further
-- pair is the parent of the job before it, and the parent's handoff that this job does.
local function levels_of(job, h)
  local levels = {}
  while job and #levels <= MOST_LEVELS do
    levels[#levels + 1] = { job = job, h = h }
    job, h = above(job)
  end
  return levels
end

-- Return the keys of the budgets of one day: the tenant's and the installation's.
local function days(job, day)
  return DAY .. day .. ':' .. job_of(job).tenant, DAY .. day
end

-- Return the keys of all budgets that hold the reservation of a handoff.
local function set_aside_at(levels, tenant, installation)
  local keys = { tenant, installation }
  for _, level in ipairs(levels) do keys[#keys + 1] = level.job end
  return keys
end

local function add_to_job(key, field, more)
  return redis.call('HINCRBY', key, field, more)
end

-- Add the same amounts to all given budgets. `changes`: field and increment in turn. An increment
-- costs Redis less than a read and a write. The budget of a day expires three days after its end.
local function count_up(keys, changes)
  for _, key in ipairs(keys) do
    local is_day = string.sub(key, 1, #DAY) == DAY
    local add = is_day and add_to_figure or add_to_job
    local first = add(key, changes[1], changes[2])
    for i = 3, #changes, 2 do add(key, changes[i], changes[i + 1]) end
    local may_be_new = is_day and first == tonumber(changes[2])
    if may_be_new then redis.call('PEXPIRE', key, whole(DAY_MS + DAY_KEPT_MS)) end
  end
end

-- Return the changes of a budget when a call's upper bound is reserved (`times` 1) or released
-- (`times` -1).
local function set_aside(worst, times)
  local changes = { 'reserved_turns', whole(times * worst.turns), 'reserved_tokens', whole(times * (worst.input + worst.output)) }
  if worst.usd > 0 then changes[5], changes[6] = 'reserved_usd', whole(times * worst.usd) end
  return changes
end

-- Return the changes of a budget by the used amounts.
local function spent(used)
  local changes = { 'turns', whole(used.turns), 'input_tokens', whole(used.input), 'output_tokens', whole(used.output) }
  if used.usd > 0 then changes[7], changes[8] = 'usd', whole(used.usd) end
  if used.cut then -- an upper bound, counted separately
    for name, n in pairs({ cut_calls = used.turns, cut_tokens = used.input + used.output, cut_usd = math.max(used.usd, 0) }) do
      changes[#changes + 1], changes[#changes + 2] = name, whole(n)
    end
  end
  return changes
end

local function forget_reservation(h)
  redis.call('HDEL', h, 'r_model', unpack(RESERVATION))
  reservations[h] = false
end

-- Release a handoff's reservation, if there is one.
local function unreserve(job, h)
  local worst = reservation_of(h)
  if not worst then return end
  count_up(set_aside_at(levels_of(job, h), days(job, worst.day)), set_aside(worst, -1))
  forget_reservation(h)
  redis.call('HDEL', h, 'turn_at') -- the call is not made, so the turn has not begun
end

-- Count a model call for `/metrics`. `is_open`: the call was in flight, and its end is unknown.
-- Returns the labels of the role and of the model.
local function count_call(job, h, used, is_open)
  local f = redis.call('HMGET', h, 'role', 'r_model', 'turn_at')
  local model = label('model', f[2] and f[2] ~= '' and f[2] or 'unknown')
  local role = label('role', f[1] or '')
  local function add(more, name, last)
    if more > 0 then add_to_metric(whole(more), name, label('tenant', job_of(job).tenant), role, model, last) end
  end
  add(1, 'model_calls', used.cut and 'cut' or used.failed and 'failed' or 'ok')
  add(used.input, 'tokens', 'input')
  add(used.output, 'tokens', 'output')
  add(used.cached or 0, 'cached_input_tokens')
  add(used.usd, 'cost_usd')
  if used.usd < 0 then add(1, 'unpriced_model_calls') end
  if f[3] and not is_open then observe(now_ms() - tonumber(f[3]), 'model_call_duration_seconds', model) end
  return role, model
end

-- Count a model call in the spending of its day, which people read for 90 days. A field of the hash
-- has the name of an amount, and the tenant, the role, the model and the mode, separated by tabs. A
-- day with too many fields counts further calls for the role and the model OTHER.
local function count_spending(day, tenant, role, model, mode, used)
  local key = SPENDING .. day
  local size = redis.pcall('HLEN', key)
  if type(size) == 'number' and size > MOST_SPENDING_FIELDS then role, model = OTHER, OTHER end
  local place = '\t' .. table.concat({ tenant, role, model, mode }, '\t')
  local amounts = { calls = 1, usd = used.usd, input = used.input, output = used.output, cached = used.cached or 0, unpriced = used.usd < 0 and 1 or 0 }
  for name, more in pairs(amounts) do
    if more > 0 then add_to_figure(key, name .. place, whole(more)) end
  end
  if size ~= 0 and type(size) == 'number' then return end
  redis.call('PEXPIRE', key, whole(PAST_KEPT_MS))
end

-- Add money to the month of a schedule, if a schedule started this job. An unreadable figure stops
-- no job.
local function add_to_month(job, usd)
  local month = job_of(job).month
  if not month or usd <= 0 then return end
  local is_first = redis.pcall('INCRBY', month, whole(usd)) == usd
  if is_first then redis.call('PEXPIRE', month, whole(MONTH_KEPT_MS)) end
end

-- Replace a handoff's reservation by the used amounts, in the budget of the day of the reservation.
-- `used` nil: the upper bound is charged, because the call was in flight. `used.turns` 0: nothing
-- is charged, because the call was never made.
local function settle(job, h, used)
  local worst, is_open = reservation_of(h), not used
  used = used or worst
  if not used then return end
  if used.turns == 0 then return unreserve(job, h) end
  local role, model = count_call(job, h, used, is_open)
  local levels, changes = levels_of(job, h), spent(used)
  local first, day = levels[#levels].job, worst and worst.day or today()
  count_spending(day, label('tenant', job_of(job).tenant), role, model, job_of(first).mode, used)
  add_to_month(first, used.usd)
  local keys, handoffs = set_aside_at(levels, days(job, day)), {}
  for i, level in ipairs(levels) do handoffs[i] = level.h end
  count_up(handoffs, changes)
  for _, change in ipairs(worst and set_aside(worst, -1) or {}) do changes[#changes + 1] = change end
  count_up(keys, changes)
  if used.usd < 0 then
    for _, all in ipairs({ handoffs, keys }) do
      for _, key in ipairs(all) do redis.call('HSET', key, 'unpriced', '1') end
    end
  end
  if worst then forget_reservation(h) end
end

-- Check an amount against one limit of a level. `most`: the limit (0 or false: none); `reserved`,
-- `used`, `used_too`: the fields of its budget. Returns nil (it fits), 'wait' (it may fit after
-- other reservations are released), or the name of the limit that it can never keep, the requested
-- amount and the rest.
local function over(key, limit, most, more, reserved, used, used_too)
  most = tonumber(most or 0)
  if most <= 0 then return nil end
  local b = redis.pcall('HMGET', key, reserved, used, used_too or used)
  local is = figure(b[2], 0) + (used_too and figure(b[3], 0) or 0)
  if more < 0 or is + more > most then return limit, more, most - is end
  return is + figure(b[1], 0) + more > most and 'wait' or nil
end

-- Check a call against all limits of a level. A limit that it can never keep comes before 'wait'.
local function misfit(key, worst, max_turns, max_tokens, max_usd)
  local waits, asked, left = over(key, 'max_turns', max_turns, 1, 'reserved_turns', 'turns')
  if waits and waits ~= 'wait' then return waits, asked, left end
  local no
  no, asked, left = over(key, 'max_tokens', max_tokens, worst.input + worst.output, 'reserved_tokens', 'input_tokens', 'output_tokens')
  if no and no ~= 'wait' then return no, asked, left end
  waits = waits or no
  no, asked, left = over(key, 'max_usd', max_usd, worst.usd, 'reserved_usd', 'usd')
  if no and no ~= 'wait' then return no, asked, left end
  return waits or no
end

-- Note the amount of a call that does not fit the rest of a day, even after all reservations are
-- released. Only the first call of a handoff is noted. No new job is accepted while less than that
-- amount is left (`daily_budget.py`). Of several such calls the smallest counts, as long as it does
-- not fit either.
-- Closing roles do not count: they read all results, and their calls are larger than those that
-- start a job.
local function note_need(day, h, closes, name, wanted, left)
  if wanted < 0 or closes or tonumber(redis.call('HGET', h, 'turns') or 0) > 0 then return end
  local field = string.gsub(name, '^max_', 'needed_')
  local known = figure(redis.call('HGET', day, field), 0)
  if known > left then wanted = math.min(known, wanted) end
  redis.call('HSET', day, field, whole(wanted))
  redis.call('PEXPIRE', day, whole(DAY_MS + DAY_KEPT_MS))
end

-- Return a limit of a job without the reserve that is kept for its closing roles; at least 1.
local function less(job, most, kept)
  kept = most and redis.call('HGET', job, kept)
  return kept and math.max(1, most - kept) or most
end

-- Return the limits of a job in turns, tokens and micro-dollars for one handoff. Only a closing
-- role may use the reserve.
local function limits_of(job, closes)
  local f = redis.call('HMGET', job, 'max_turns', 'max_tokens', 'max_usd')
  if closes then return f[1], f[2], f[3] end
  return less(job, f[1], 'keep_turns'), less(job, f[2], 'keep_tokens'), less(job, f[3], 'keep_usd')
end

-- Reserve the upper bound of the next call at every level or at none. Returns nil, or the refusal:
-- 'wait', or the name of a limit and its level. A handoff has one call at a time: an unused earlier
-- reservation is released first.
local function reserve(job, h, worst)
  unreserve(job, h)
  local day, levels, max_usd, closes = today(), levels_of(job, h), unpack(redis.call('HMGET', h, 'max_usd', 'closes'))
  local tenant, installation = days(job, day)
  local waits = max_usd and misfit(h, worst, false, false, max_usd) or nil
  if waits and waits ~= 'wait' then return waits, 'handoff' end
  for _, level in ipairs(levels) do
    local is_last = level.h == h and closes
    if level.h ~= h then is_last = redis.call('HGET', level.h, 'closes') end
    local no = misfit(level.job, worst, limits_of(level.job, is_last))
    if no and no ~= 'wait' then return no, level.job == job and 'job' or 'ancestor' end
    waits = waits or no
  end
  local caps = redis.call('HMGET', 'handoff:caps', 'tenant_day_tokens', 'tenant_day_usd', 'day_tokens', 'day_usd')
  for place, key in ipairs({ tenant, installation }) do
    local no, asked, left = misfit(key, worst, false, caps[2 * place - 1], caps[2 * place])
    if no and no ~= 'wait' then
      note_need(key, h, closes, no, asked, left)
      return no, place == 1 and 'tenant' or 'installation'
    end
    waits = waits or no
  end
  if waits then return waits end
  worst.turns = 1
  count_up(set_aside_at(levels, tenant, installation), set_aside(worst, 1))
  redis.call(
    'HSET', h, 'r_turns', '1', 'r_in', whole(worst.input), 'r_out', whole(worst.output), 'r_usd', whole(worst.usd), 'r_day', day,
    'r_model', worst.model or '', 'turn_at', whole(now_ms())
  )
  reservations[h] = nil -- the reservation has changed
  return nil
end
