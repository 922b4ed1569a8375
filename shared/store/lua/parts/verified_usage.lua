-- Part of the script that commits decisions: the verified usage, which is the sum of the signed
-- results that the journals hold. `parts/budgets.lua` reads it.

-- Largest sum, and largest limit of tokens and micro-dollars (`types/limits.py`). A worker that was
-- taken over may report any number. `number_or` reads a sum above 2^53 as 0, so nothing would
-- count.
local MAX_VERIFIED = 10 ^ 15

-- Report a counter that is lower than the verified usage, for the audit, and raise it. A worker may
-- have deleted the account, so it gets its time to live, `ms`, again.
local function repair(account, verified, at, ms)
  local stored = redis.pcall('HMGET', account, unpack(column(AMOUNTS, 'total')))
  local low = {}
  for i, amount in ipairs(AMOUNTS) do
    local counted = number_or(stored[i], 0)
    if counted < verified[amount.total] then
      redis.call('HSET', account, amount.total, integer(verified[amount.total]))
      local text = '%s was %d, and the results have used %d'
      low[#low + 1] = string.format(text, amount.total, counted, verified[amount.total])
    end
  end
  if #low == 0 then return end
  redis.call('PEXPIRE', account, integer(ms))
  local entry = {
    at = at / 1000,
    action = 'refuse',
    subject = 'counter ' .. account,
    detail = table.concat(low, '; '),
  }
  redis.call('LPUSH', 'handoff:refusals', cjson.encode(entry))
end

-- Return the amounts that are new since `earlier`. `sums`, `earlier`: in the order of AMOUNTS.
local function increase(sums, earlier)
  local more, is_new = {}, false
  for i in ipairs(AMOUNTS) do
    more[i] = math.max(0, sums[i] - number_or(earlier[i], 0))
    is_new = is_new or more[i] > 0
  end
  return is_new and more or nil
end

-- Return the amount of this name. `more`: in the order of AMOUNTS.
local function amount_named(name, more)
  for i, amount in ipairs(AMOUNTS) do
    if amount.name == name then return more[i] end
  end
  return 0
end

-- Add amounts to the verified sums at a key. Returns the new sums, by the names of their totals.
local function add_verified(key, more)
  local sums, fields = verified_at(key), {}
  for i, amount in ipairs(AMOUNTS) do
    sums[amount.total] = math.min(MAX_VERIFIED, sums[amount.total] + more[i])
    fields[VERIFIED[i]] = integer(sums[amount.total])
  end
  set_fields(key, fields)
  return sums
end

-- Add the new amounts of a day to the verified usage of the day. The field `verified_today` of the
-- job's hash has the day and its amounts at the last call.
local function add_verified_of_day(job, day, sums, at)
  local words = {}
  local earlier = redis.call('HGET', job, 'verified_today') or ''
  for word in string.gmatch(earlier, '%S+') do words[#words + 1] = word end
  local more = increase(sums, words[1] == day and { unpack(words, 2) } or {})
  if not more then return end
  redis.call('HSET', job, 'verified_today', day .. ' ' .. table.concat(sums, ' '))
  for _, account in ipairs({ days(job, day) }) do
    local key = verified_key_of(account)
    local sums = add_verified(key, more)
    redis.call('PEXPIRE', key, integer(DAY_MS + DAY_KEPT_MS))
    repair(account, sums, at, DAY_MS + DAY_KEPT_MS)
  end
end

-- Record the usage of the results of a job. `verified`: `job` and `today` are sums in the order of
-- AMOUNTS, and `day` is the day of `today`. The results of a child job are also results of the job
-- above it.
local function record_verified_usage(job, verified, at)
  local more = increase(verified.job, redis.call('HMGET', job, unpack(VERIFIED)))
  if not more then return end
  repair(progress_of(job), add_verified(job, more), at, left_of(job))
  if redis.call('HEXISTS', job, 'parent') == 1 then return end
  add_verified_of_day(job, verified.day, verified.today, at)
  local month, usd = job_of(job).month, amount_named('usd', more)
  if not month or usd == 0 then return end
  local key = month .. ':verified'
  local sum = math.min(MAX_VERIFIED, number_or(redis.call('GET', key), 0) + usd)
  redis.call('SET', key, integer(sum), 'PX', integer(MONTH_KEPT_MS))
end
