-- Part of the scripts that keep or read the budget accounts. There are five levels, as in `Level`
-- of `types/errors.py`: a handoff, its job, the jobs above a child job, the tenant's day, and the
-- installation's day. `types/budget_measures.py` gives the scripts two tables. AMOUNTS has what a
-- call uses, and MEASURES has the sums of amounts that a limit bounds. Each budget is a hash with
-- the total of each amount (turns, input_tokens, output_tokens, usd). Jobs and days also have the
-- reserved sum of each measure (reserved_turns, reserved_tokens, reserved_usd). The amounts of a
-- job are in its progress, and its limits are in its hash, which workers only read. The parent's
-- handoff that a child job does has no amounts while the child works for it: `amounts_for` returns
-- them.
-- `usd` is whole micro-dollars; a price of -1 is unknown. A day also has needed_tokens and
-- needed_usd: the amount that a refused handoff needed to begin.

local DAY_MS = 24 * 3600 * 1000
local DAY_KEPT_MS = 3 * DAY_MS -- after the end of the day; a call at midnight ends long before that
local MONTH_KEPT_MS = 70 * DAY_MS -- from the first cost of the month
local DAY = 'handoff:day:'
local SPENDING = 'handoff:spending:'
local VERIFIED_USAGE = 'handoff:verified_usage:'
local MAX_SPENDING_FIELDS = 5000 -- of one day: about 400 kB

-- Return one field of each row of a table.
local function column(rows, field)
  local values = {}
  for i, row in ipairs(rows) do values[i] = row[field] end
  return values
end

-- The fields of a handoff's hash with its reservation: the upper bound of the call, and the day
-- that holds the reservation.
local RESERVATION = column(AMOUNTS, 'reserved')
RESERVATION[#RESERVATION + 1] = 'r_day'

-- Reservations of handoffs; false if there is none. Redis is read once in a script, or not at all
-- if the caller has the fields and passes them to `remember_reservation`, in the order of
-- RESERVATION.
local reservations = {}
local function remember_reservation(handoff_hash, fields)
  reservations[handoff_hash] = false
  local day = fields[#RESERVATION]
  if not fields[1] or not day then return false end -- a worker may have written one of them
  local worst = { cut = true, day = day }
  for i, amount in ipairs(AMOUNTS) do worst[amount.name] = number_or(fields[i], 0) end
  reservations[handoff_hash] = worst
  return worst
end

local function reservation_of(handoff_hash)
  if reservations[handoff_hash] ~= nil then return reservations[handoff_hash] end
  return remember_reservation(handoff_hash, redis.call('HMGET', handoff_hash, unpack(RESERVATION)))
end

-- Return the number of today in days since 1970 (UTC), by Redis's clock.
local function today()
  return string.format('%d', math.floor(now_ms() / DAY_MS))
end

-- Return the pairs of job and handoff that a call is charged to, the innermost first. Each further
-- pair is the parent of the job before it, and the parent's handoff that this job does.
local function levels_of(job, handoff_hash)
  local levels = {}
  while job and #levels <= MAX_LEVELS do
    levels[#levels + 1] = { job = job, handoff_hash = handoff_hash }
    job, handoff_hash = parent_of(job)
  end
  return levels
end

-- Return the keys of the budgets of one day: the tenant's and the installation's.
local function days(job, day)
  return DAY .. day .. ':' .. job_of(job).tenant, DAY .. day
end

-- Return the keys of all budgets that hold the reservation of a handoff.
local function accounts_of_call(levels, tenant, installation)
  local keys = { tenant, installation }
  for _, level in ipairs(levels) do keys[#keys + 1] = progress_of(level.job) end
  return keys
end

-- Fields of a job's hash and of the verified usage of a day: the sums of the results that the
-- journals hold.
-- Workers keep the counters of an account, so a worker that was taken over can lower them. Only
-- supervisors write these fields, so an account counts at least these sums.
local VERIFIED = {}
for i, amount in ipairs(AMOUNTS) do VERIFIED[i] = 'verified_' .. amount.total end

-- Return the key of the verified usage of a day, from the key of its budget.
local function verified_key_of(day)
  return VERIFIED_USAGE .. string.sub(day, #DAY + 1)
end

-- Return the verified sums at a key, by the names of their totals.
local function verified_at(key)
  local sums, stored = {}, redis.pcall('HMGET', key, unpack(VERIFIED))
  for i, amount in ipairs(AMOUNTS) do sums[amount.total] = number_or(stored[i], 0) end
  return sums
end

-- Add the same amounts to all given budgets. `changes`: field and increment in turn. An increment
-- costs Redis less than a read and a write. The budget of a day expires three days after its end.
local function add_to_accounts(keys, changes)
  if #changes == 0 then return end -- of a reservation that cannot be read
  for _, key in ipairs(keys) do
    local is_day = string.sub(key, 1, #DAY) == DAY
    local first = add_to_figure(key, changes[1], changes[2])
    for i = 3, #changes, 2 do add_to_figure(key, changes[i], changes[i + 1]) end
    local may_be_new = is_day and first == tonumber(changes[2])
    if may_be_new then redis.call('PEXPIRE', key, integer(DAY_MS + DAY_KEPT_MS)) end
  end
end

-- Return the part of a call that a measure counts.
local function amount_of(measure, call)
  local sum = 0
  for _, name in ipairs(measure.amounts) do sum = sum + call[name] end
  return sum
end

-- Return the changes of a budget when a call's upper bound is reserved (`times` 1) or released
-- (`times` -1).
local function reservation_changes(worst, times)
  local changes = {}
  for _, measure in ipairs(MEASURES) do
    local more = amount_of(measure, worst)
    if more > 0 then
      changes[#changes + 1], changes[#changes + 2] = measure.reserved, integer(times * more)
    end
  end
  return changes
end

-- Return the changes of a budget by the used amounts.
local function usage_changes(used)
  local changes = {}
  for _, amount in ipairs(AMOUNTS) do
    local more = used[amount.name]
    if more > 0 then changes[#changes + 1], changes[#changes + 2] = amount.total, integer(more) end
  end
  if used.cut then -- an upper bound, counted separately
    for name, n in pairs({
      cut_calls = used.turns,
      cut_tokens = used.input + used.output,
      cut_usd = math.max(used.usd, 0),
    }) do
      changes[#changes + 1], changes[#changes + 2] = name, integer(n)
    end
  end
  return changes
end

local SPENT_FIELDS = column(AMOUNTS, 'total')
local FIELDS_OF_SAMPLES = { 'batch_saved', 'server_tools' }
local OTHER_FIELDS = { 'unpriced', 'cut_calls', 'cut_tokens', 'cut_usd', unpack(FIELDS_OF_SAMPLES) }
for _, name in ipairs(OTHER_FIELDS) do
  SPENT_FIELDS[#SPENT_FIELDS + 1] = name
end

-- Return the amounts that a child job has spent for a handoff of its parent, by their names. An
-- earlier handoff may have used the same child job: `before_` fields hold the amounts until then.
-- A worker that was taken over may lower the counters below these amounts.
local function amounts_for(handoff_hash, child)
  local amounts = {}
  local now = redis.call('HMGET', progress_of(child), unpack(SPENT_FIELDS))
  for i, name in ipairs(SPENT_FIELDS) do
    if now[i] then
      local before = number_or(redis.call('HGET', handoff_hash, 'before_' .. name), 0)
      amounts[name] = integer(math.max(0, number_or(now[i], 0) - before))
    end
  end
  return amounts
end

-- A handoff of the parent begins to use a child job. If an earlier handoff has used it, store the
-- amounts of the earlier handoff there.
local function begin_amounts_for(handoff_hash, child, earlier)
  if earlier and earlier ~= handoff_hash and redis.call('EXISTS', earlier) == 1 then
    for name, amount in pairs(amounts_for(earlier, child)) do
      redis.call('HSET', earlier, name, amount)
    end
  end
  local now = redis.call('HMGET', progress_of(child), unpack(SPENT_FIELDS))
  for i, name in ipairs(SPENT_FIELDS) do
    if now[i] then redis.call('HSET', handoff_hash, 'before_' .. name, now[i]) end
  end
end

local function forget_reservation(handoff_hash)
  redis.call('HDEL', handoff_hash, 'r_model', 'r_own_usd', 'r_batch', 'batch', unpack(RESERVATION))
  reservations[handoff_hash] = false
end

-- Release a handoff's reservation, if there is one.
local function unreserve(job, handoff_hash)
  local worst = reservation_of(handoff_hash)
  if not worst then return end
  local accounts = accounts_of_call(levels_of(job, handoff_hash), days(job, worst.day))
  add_to_accounts(accounts, reservation_changes(worst, -1))
  forget_reservation(handoff_hash)
  redis.call('HDEL', handoff_hash, 'turn_at') -- the call is not made, so the turn has not begun
end

-- Count a model call for `/metrics`. `is_open`: the call was in flight, and its end is unknown.
-- Returns the labels of the agent and of the model.
local function count_call(job, handoff_hash, used, is_open)
  local agent, model, turn_at = unpack(
    redis.call('HMGET', handoff_hash, 'agent', 'r_model', 'turn_at')
  )
  if not model or model == '' then model = 'unknown' end
  model = label('model', model)
  agent = label('agent', agent or '')
  local outcome = 'ok'
  if used.cut then
    outcome = 'cut'
  elseif used.failed then
    outcome = 'failed'
  end
  local function add(more, name, last)
    if more > 0 then
      add_to_metric(integer(more), name, label('tenant', job_of(job).tenant), agent, model, last)
    end
  end
  add(1, 'model_calls', outcome)
  add(used.input, 'tokens', 'input')
  add(used.output, 'tokens', 'output')
  add(used.cached or 0, 'cached_input_tokens')
  add(used.saved or 0, 'cache_saved_usd')
  add(used.surcharge or 0, 'cache_surcharge_usd')
  add(used.usd, 'cost_usd')
  if used.usd < 0 then add(1, 'unpriced_model_calls') end
  add(used.batched or 0, 'batch_calls')
  add(used.batch_saved or 0, 'batch_saved_usd')
  if turn_at and not is_open then
    observe(now_ms() - number_or(turn_at, now_ms()), 'model_call_duration_seconds', model)
  end
  return agent, model
end

-- Add amounts to the spending of a day, which people read for 90 days. A field of the hash has the
-- name of an amount, and the tenant, the agent, the model and the mode, separated by tabs. A day
-- with too many fields counts further amounts for the agent and the model OTHER.
local function add_to_spending(day, tenant, agent, model, mode, amounts)
  local key = SPENDING .. day
  local size = redis.pcall('HLEN', key)
  if type(size) == 'number' and size > MAX_SPENDING_FIELDS then agent, model = OTHER, OTHER end
  local place = '\t' .. table.concat({ tenant, agent, model, mode }, '\t')
  for name, more in pairs(amounts) do
    if more > 0 then add_to_figure(key, name .. place, integer(more)) end
  end
  if size ~= 0 and type(size) == 'number' then return end
  redis.call('PEXPIRE', key, integer(PAST_KEPT_MS))
end

-- Count a model call in the spending of its day.
local function count_spending(day, tenant, agent, model, mode, used)
  add_to_spending(day, tenant, agent, model, mode, {
    calls = 1, usd = used.usd, input = used.input, output = used.output,
    unpriced = used.usd < 0 and 1 or 0,
    cached = used.cached or 0, saved = used.saved or 0, surcharge = used.surcharge or 0,
    batched = used.batched or 0, batch_saved = used.batch_saved or 0,
  })
end

-- Add money to the month of a schedule, if a schedule started this job. An unreadable figure stops
-- no job.
local function add_to_month(job, usd)
  local month = job_of(job).month
  if not month or usd <= 0 then return end
  local is_first = redis.pcall('INCRBY', month, integer(usd)) == usd
  if is_first then redis.call('PEXPIRE', month, integer(MONTH_KEPT_MS)) end
end

-- Add the amounts that a sample of the agent has to a handoff and to the jobs that it belongs to.
local function add_sample_amounts(handoff_hash, levels, used)
  local keys = { handoff_hash }
  for _, level in ipairs(levels) do keys[#keys + 1] = progress_of(level.job) end
  for _, name in ipairs(FIELDS_OF_SAMPLES) do
    local more = used[name] or 0
    for _, key in ipairs(more > 0 and keys or {}) do add_to_figure(key, name, integer(more)) end
  end
end

-- Return what a call counts that was in flight: its upper bound, at the price of its own model. The
-- reservation may have the price of a dearer model, which may have served the turn.
local function used_by_open_call(handoff_hash, worst)
  local used = {}
  for name, value in pairs(worst) do used[name] = value end
  local own_usd = redis.call('HGET', handoff_hash, 'r_own_usd')
  used.usd = math.min(worst.usd, number_or(own_usd, worst.usd))
  return used
end

-- Replace a handoff's reservation by the used amounts, in the budget of the day of the reservation.
-- `used` nil: the upper bound is charged, because the call was in flight. `used.turns` 0: nothing
-- is charged, because the call was never made.
local function settle(job, handoff_hash, used)
  local worst, is_open = reservation_of(handoff_hash), not used
  used = used or worst and used_by_open_call(handoff_hash, worst)
  if not used then return end
  if used.turns == 0 then return unreserve(job, handoff_hash) end
  local agent, model = count_call(job, handoff_hash, used, is_open)
  local levels = levels_of(job, handoff_hash)
  local users_job = levels[#levels].job -- it has no parent
  local day = worst and worst.day or today()
  local tenant = label('tenant', job_of(job).tenant)
  count_spending(day, tenant, agent, model, job_of(users_job).mode, used)
  add_to_month(users_job, used.usd)
  local accounts = accounts_of_call(levels, days(job, day))
  local changes = usage_changes(used)
  add_to_accounts({ handoff_hash }, changes)
  if worst then
    for _, change in ipairs(reservation_changes(worst, -1)) do changes[#changes + 1] = change end
  end
  add_to_accounts(accounts, changes)
  add_sample_amounts(handoff_hash, levels, used)
  if used.usd < 0 then
    redis.call('HSET', handoff_hash, 'unpriced', '1')
    for _, key in ipairs(accounts) do redis.call('HSET', key, 'unpriced', '1') end
  end
  if worst then forget_reservation(handoff_hash) end
end

-- Settle the reservation of a claim that has ended without a result. A call in flight is charged at
-- its upper bound. The reservation of a call in a batch stays: the next claim reads its reply.
local function settle_lost(job, handoff_hash)
  if redis.call('HEXISTS', handoff_hash, 'r_batch') == 0 then settle(job, handoff_hash, nil) end
end

-- Settle the reservation of a handoff that has ended without the reply to its last call. If the
-- call is in a batch, note the batch: a supervisor cancels it, and settles the reservation by its
-- result. Otherwise the call is charged at its upper bound.
--
-- A worker may have written any text as the batch. A text that is not UTF-8 is not noted, because
-- no supervisor could remove it from the list. Only supervisors may write the list.
local RESULTS_KEPT_MS = 29 * 24 * 3600 * 1000 -- the provider keeps the result of a batch so long
local function settle_unanswered(job, handoff_hash, handoff)
  local MAX_BYTES = 400
  local batch = redis.call('HGET', handoff_hash, 'batch')
  local is_name = batch and #batch <= MAX_BYTES and string.find(batch, '^[!-~]+ [!-~]+$')
  local is_short = is_name and redis.call('HSTRLEN', handoff_hash, 'r_model') <= MAX_BYTES
  local model = is_short and (redis.call('HGET', handoff_hash, 'r_model') or '')
  local is_readable = model and string.find(model, '^[ -~]*$')
  if not is_readable then return settle(job, handoff_hash, nil) end
  local entry = table.concat({ id_of(job), handoff, batch, model }, ' ')
  redis.call('ZADD', 'handoff:batches', integer(now_ms()), entry)
  redis.call('PEXPIRE', 'handoff:batches', integer(RESULTS_KEPT_MS))
end

-- Check a call against one limit of a level. `most`: the limit; `verified`: the sums that the level
-- has used at least. Returns nil (it fits), 'wait' (it may fit after other reservations are
-- released), or the limit that it can never keep, with the requested amount and the rest.
local function check_limit(key, measure, most, worst, verified)
  local wanted = amount_of(measure, worst)
  local stored = redis.pcall('HMGET', key, measure.reserved, unpack(measure.totals))
  local reserved, used = number_or(stored[1], 0), 0
  for i, total in ipairs(measure.totals) do
    used = used + math.max(number_or(stored[1 + i], 0), verified[total] or 0)
  end
  local is_unpriced = wanted < 0
  if is_unpriced or used + wanted > most then return measure, wanted, most - used end
  if used + reserved + wanted > most then return 'wait' end
  return nil
end

-- Return whether a refusal is a limit that a call can never keep, and not 'wait' or nil.
local function is_final(refusal)
  return refusal and refusal ~= 'wait'
end

-- Check a call against all limits of a level, in the order of MEASURES. A limit that it can never
-- keep comes before 'wait'. `usage`: the key of the verified sums (nil: a handoff has none).
local function check_level(key, worst, limits, usage)
  local waits, verified
  for i, measure in ipairs(MEASURES) do
    local most = tonumber(limits[i] or 0)
    if most > 0 then
      verified = verified or usage and verified_at(usage) or {}
      local refusal, wanted, left = check_limit(key, measure, most, worst, verified)
      if is_final(refusal) then return refusal, wanted, left end
      waits = waits or refusal
    end
  end
  return waits
end

-- Note the amount of a call that does not fit the rest of a day, even after all reservations are
-- released. Only the first call of a handoff is noted. No new job is accepted while less than that
-- amount is left (`daily_budgets.py`). Of several such calls the smallest counts, as long as it
-- does not fit either.
-- Closing roles do not count: they read all results, and their calls are larger than those that
-- start a job.
local function record_need(day, handoff_hash, closes, measure, wanted, left)
  if wanted < 0 or closes then return end
  if tonumber(redis.call('HGET', handoff_hash, 'turns') or 0) > 0 then return end
  local known = number_or(redis.call('HGET', day, measure.needed), 0)
  if known > left then wanted = math.min(known, wanted) end
  redis.call('HSET', day, measure.needed, integer(wanted))
  redis.call('PEXPIRE', day, integer(DAY_MS + DAY_KEPT_MS))
end

local LIMITS = column(MEASURES, 'stored_limit')

-- The caps of a day in the order of MEASURES: those of the tenant, then those of the installation.
local CAPS = column(MEASURES, 'tenant_cap')
for _, measure in ipairs(MEASURES) do CAPS[#CAPS + 1] = measure.day_cap end

-- Return a limit of a job without the reserve that is kept for its closing roles; at least 1.
local function limit_without_reserve(job, most, reserve_field)
  local reserve = most and redis.call('HGET', job, reserve_field)
  return reserve and math.max(1, most - reserve) or most
end

-- Return the limits of a job for one handoff, in the order of MEASURES. Only a closing role may use
-- the reserve.
local function limits_of(job, closes)
  local limits = redis.call('HMGET', job, unpack(LIMITS))
  if closes then return limits end
  for i, measure in ipairs(MEASURES) do
    limits[i] = limit_without_reserve(job, limits[i], measure.kept)
  end
  return limits
end

-- Check a call against the limits of the jobs that it is charged to. Returns the result of
-- `check_level`, and the name of the level of a limit that the call can never keep. `closes`:
-- whether the handoff is of a closing role.
local function check_jobs(job, handoff_hash, levels, worst, closes)
  local waits
  for _, level in ipairs(levels) do
    local may_use_reserve = closes
    if level.handoff_hash ~= handoff_hash then
      may_use_reserve = redis.call('HEXISTS', level.handoff_hash, 'closes') == 1
    end
    local limits = limits_of(level.job, may_use_reserve)
    local refusal = check_level(progress_of(level.job), worst, limits, level.job)
    if is_final(refusal) then return refusal, level.job == job and 'job' or 'ancestor' end
    waits = waits or refusal
  end
  return waits
end

-- Check a call against the caps of a day, as `check_jobs` does. `tenant`, `installation`: keys of
-- the budgets of the day.
local function check_days(handoff_hash, tenant, installation, worst, closes)
  local NAMES = { 'tenant', 'installation' }
  local caps = redis.call('HMGET', 'handoff:caps', unpack(CAPS))
  local waits
  for place, key in ipairs({ tenant, installation }) do
    local limits = { unpack(caps, 1 + (place - 1) * #MEASURES, place * #MEASURES) }
    local refusal, wanted, left = check_level(key, worst, limits, verified_key_of(key))
    if is_final(refusal) then
      record_need(key, handoff_hash, closes, refusal, wanted, left)
      return refusal, NAMES[place]
    end
    waits = waits or refusal
  end
  return waits
end

-- Store the reservation of a call in the hash of its handoff.
local function store_reservation(handoff_hash, day, worst)
  local own_usd = integer(worst.own_usd or worst.usd)
  local fields = { 'r_day', day, 'r_model', worst.model or '', 'r_own_usd', own_usd }
  -- The wait for a batch counts neither for the turn nor for the call.
  if worst.batch then
    fields[7], fields[8] = 'r_batch', '1'
  else
    fields[7], fields[8] = 'turn_at', integer(now_ms())
  end
  for _, amount in ipairs(AMOUNTS) do
    fields[#fields + 1], fields[#fields + 2] = amount.reserved, integer(worst[amount.name])
  end
  redis.call('HSET', handoff_hash, unpack(fields))
  reservations[handoff_hash] = nil -- the reservation has changed
end

-- Reserve the upper bound of the next call at every level or at none. Returns nil, or the refusal:
-- 'wait', or the name of a limit and its level. A handoff has one call at a time: an unused earlier
-- reservation is released first.
local function reserve(job, handoff_hash, worst)
  unreserve(job, handoff_hash)
  worst.turns = 1
  local day = today()
  local levels = levels_of(job, handoff_hash)
  local tenant, installation = days(job, day)
  local own_limits = redis.call('HMGET', handoff_hash, 'closes', unpack(LIMITS))
  local closes = table.remove(own_limits, 1)
  local refusal, level = check_level(handoff_hash, worst, own_limits), 'handoff'
  local waits = refusal
  if not is_final(refusal) then
    refusal, level = check_jobs(job, handoff_hash, levels, worst, closes)
    waits = waits or refusal
  end
  if not is_final(refusal) then
    refusal, level = check_days(handoff_hash, tenant, installation, worst, closes)
    waits = waits or refusal
  end
  if is_final(refusal) then return refusal.stored_limit, level end
  if waits then return 'wait' end
  add_to_accounts(accounts_of_call(levels, tenant, installation), reservation_changes(worst, 1))
  store_reservation(handoff_hash, day, worst)
  return nil
end
