-- Part of the scripts that count for `/metrics` of `handoff serve`. A count is written by the
-- script that writes the counted fact, so both are stored, or neither is. `handoff:metrics` is a
-- hash of whole numbers. A field has the name of a metric without the prefix `handoff_`, and the
-- values of its labels, separated by tabs. A histogram has a field for each bucket, with the upper
-- bound in seconds after the name, and a field with `sum` in that place, in ms. Money is in
-- micro-dollars. `supervisor/serve/metrics.py` has the names and labels.

-- Add to a whole number of a hash, and return the sum. An unreadable number starts again at zero;
-- otherwise it would stop every job.
local function add_to_figure(key, field, more)
  local sum = redis.pcall('HINCRBY', key, field, more)
  if type(sum) ~= 'table' then return sum end
  if redis.call('TYPE', key).ok ~= 'hash' then redis.call('DEL', key) end
  redis.call('HSET', key, field, more)
  return tonumber(more)
end

local function add_to_metric(more, name, ...)
  add_to_figure('handoff:metrics', table.concat({ name, ... }, '\t'), more)
end

-- Return the value of a label. The first values of each kind have their own time series, and the
-- later ones share the value OTHER. The set `handoff:metrics:KIND` holds the first values. Scripts
-- read the set of tenants whole, so no worker may write to it: a new tenant is added with its first
-- job.
local OTHER = 'other'
local MAX_LABEL_BYTES = 1000 -- more than any name has
local MAX_VALUES = { tenant = 50, agent = 100, model = 30 }
local values_read = {}
local function find_label(kind, value, may_add)
  if #value > MAX_LABEL_BYTES then return OTHER end
  local name = kind .. ':' .. value
  if not values_read[name] then
    local set = 'handoff:metrics:' .. kind
    values_read[name] = value
    if redis.pcall('SISMEMBER', set, value) ~= 1 then
      local size = may_add and redis.pcall('SCARD', set)
      local has_room = type(size) == 'number' and size < MAX_VALUES[kind]
      if has_room then redis.call('SADD', set, value) else values_read[name] = OTHER end
    end
  end
  return values_read[name]
end

local function label(kind, value)
  return find_label(kind, value, kind ~= 'tenant')
end

local function add_tenant_label(tenant)
  find_label('tenant', tenant, true)
end

-- Return the tenants with time series of their own. A set with more values than `label` allows was
-- written by another program, and no script reads it whole.
local function labelled_tenants()
  local set = 'handoff:metrics:tenant'
  local size = redis.pcall('SCARD', set)
  local is_ours = type(size) == 'number' and size <= MAX_VALUES.tenant
  return is_ours and redis.call('SMEMBERS', set) or {}
end

-- Count a duration in a histogram.
local BOUNDS_S = { 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600 }
local function observe(ms, name, ...)
  local bound = '+Inf'
  for _, most_s in ipairs(BOUNDS_S) do
    if ms <= 1000 * most_s then
      bound = string.format('%g', most_s)
      break
    end
  end
  add_to_metric('1', name, bound, ...)
  add_to_metric(string.format('%d', math.max(0, ms)), name, 'sum', ...)
end
