-- The filter of the list of jobs. ARGV: `JobFilterArguments` in `positional_arguments.py`, then
-- statuses (none: any).

local FIRST_STATUS = 12

-- Return the value of a condition `=VALUE`; nil: any.
local function read_condition(argument)
  if argument == '' then return nil end
  return string.sub(argument, 2)
end

-- Return the filter by the names of its conditions; nil: any. `text` and `min_usd`: '' for any.
-- `statuses` is a set.
local function read_filter()
  local place, lowest, most_read, most, tenant, mode, priority, text, min_usd, assigned,
    failed = unpack(ARGV, 1, FIRST_STATUS - 1)
  local filter = {
    tenant = read_condition(tenant), mode = read_condition(mode),
    priority = read_condition(priority), text = text, min_usd = min_usd,
    assigned = read_condition(assigned), failed = read_condition(failed),
  }
  if #ARGV >= FIRST_STATUS then
    filter.statuses = {}
    for n = FIRST_STATUS, #ARGV do filter.statuses[ARGV[n]] = true end
  end
  return filter
end

local function is_any_or_equal(wanted, value)
  return wanted == nil or wanted == value
end

local STORED = {
  queued = true, running = true, ok = true, partial = true, failed = true, cancelled = true,
}

-- Return the status of a job that matches; nil if it does not, or if retention has removed it.
-- Another program may have written a key of another type (`fields.err`), or another status.
local function matching_status(id, filter)
  local job = key_of(id)
  local fields = redis.pcall(
    'HMGET', job, 'status', 'tenant', 'asks', 'mode', 'priority', 'assigned'
  )
  if fields.err then fields = { '', '' } end
  local status, tenant, asks, mode, priority, assigned = unpack(fields, 1, 6)
  if not status then return nil end
  if not is_any_or_equal(filter.tenant, tenant or 'default') then return nil end
  if not is_any_or_equal(filter.mode, mode) then return nil end
  if not is_any_or_equal(filter.priority, priority) then return nil end
  if filter.text ~= '' then
    local text = string.lower(id .. ' ' .. title_of(job))
    if not string.find(text, filter.text, 1, true) then return nil end
  end
  local usd, asked_last, failed_agents = unpack(
    redis.pcall('HMGET', progress_of(job), 'usd', 'asked_last', 'failed_agents')
  )
  if filter.min_usd ~= '' and number_or(usd, 0) < tonumber(filter.min_usd) then return nil end
  if filter.assigned and not has_word(assigned, filter.assigned) then return nil end
  if filter.failed and not has_word(failed_agents, filter.failed) then return nil end
  if waits_for_person(status, asks, asked_last, job) then
    status = 'waiting'
  elseif not STORED[status] then
    status = 'unreadable'
  end
  if filter.statuses and not filter.statuses[status] then return nil end
  return status
end
