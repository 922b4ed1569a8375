-- Part of the script that commits decisions: the books, which are the sums of the results that the
-- journals hold. `parts/budgets.lua` reads them.

-- Largest sum, and largest limit of tokens and micro-dollars (`types/limits.py`). A worker that was
-- taken over may report any number. `figure` reads a sum above 2^53 as 0, so the books would be empty.
local MOST_BOOKED = 10 ^ 15

-- Report a counter that is lower than the books, for the audit, and raise it. A worker may have
-- deleted the account, so it gets its time to live, `ms`, again.
local function repair(account, booked, at, ms)
  local stored = redis.pcall('HMGET', account, unpack(column(AMOUNTS, 'total')))
  local low = {}
  for i, amount in ipairs(AMOUNTS) do
    local is = figure(stored[i], 0)
    if is < booked[amount.total] then
      redis.call('HSET', account, amount.total, whole(booked[amount.total]))
      low[#low + 1] = string.format('%s was %d, and the results have used %d', amount.total, is, booked[amount.total])
    end
  end
  if #low == 0 then return end
  redis.call('PEXPIRE', account, whole(ms))
  local entry = { at = at / 1000, action = 'refuse', subject = 'counter ' .. account, detail = table.concat(low, '; ') }
  redis.call('LPUSH', 'handoff:refusals', cjson.encode(entry))
end

-- Return the amounts that are new since the last booking. `sums`, `earlier`: in the order of
-- AMOUNTS.
local function increase(sums, earlier)
  local more, is_new = {}, false
  for i in ipairs(AMOUNTS) do
    more[i] = math.max(0, sums[i] - figure(earlier[i], 0))
    is_new = is_new or more[i] > 0
  end
  return is_new and more or nil
end

-- Add amounts to the booked sums at a key. Returns the new sums, by the names of their totals.
local function book_at(key, more)
  local sums, fields = booked_at(key), {}
  for i, amount in ipairs(AMOUNTS) do
    sums[amount.total] = math.min(MOST_BOOKED, sums[amount.total] + more[i])
    fields[BOOKED[i]] = whole(sums[amount.total])
  end
  put(key, fields)
  return sums
end

-- Add the new amounts of a day to the books of the day. The field `booked_today` of the job's hash
-- has the day and its amounts at the last booking.
local function book_day(job, day, sums, at)
  local words = {}
  for word in string.gmatch(redis.call('HGET', job, 'booked_today') or '', '%S+') do words[#words + 1] = word end
  local more = increase(sums, words[1] == day and { unpack(words, 2) } or {})
  if not more then return end
  redis.call('HSET', job, 'booked_today', day .. ' ' .. table.concat(sums, ' '))
  for _, account in ipairs({ days(job, day) }) do
    local books = books_of(account)
    local sums = book_at(books, more)
    redis.call('PEXPIRE', books, whole(DAY_MS + DAY_KEPT_MS))
    repair(account, sums, at, DAY_MS + DAY_KEPT_MS)
  end
end

-- Book the results of a job. `booked`: `job` and `today` are sums in the order of AMOUNTS, and `day`
-- is the day of `today`. The results of a child job are also results of the job above it.
local function book(job, booked, at)
  local more = increase(booked.job, redis.call('HMGET', job, unpack(BOOKED)))
  if not more then return end
  repair(progress_of(job), book_at(job, more), at, left_of(job))
  if redis.call('HEXISTS', job, 'parent') == 1 then return end
  book_day(job, booked.day, booked.today, at)
  local month, usd = job_of(job).month, more[#AMOUNTS]
  if not month or usd == 0 then return end
  local books = month .. ':booked'
  local sum = math.min(MOST_BOOKED, figure(redis.call('GET', books), 0) + usd)
  redis.call('SET', books, whole(sum), 'PX', whole(MONTH_KEPT_MS))
end
