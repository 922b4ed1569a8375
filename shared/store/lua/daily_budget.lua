-- Daily budget of a tenant and of the installation: spent, allowed, and needed for new work. And
-- the open jobs of the tenant.
-- KEYS caps.  ARGV: tenant.  Returns {ms until the next day, the tenant's budget, the
-- installation's, {open jobs, most open jobs (0: no limit)}}; a budget is {spent tokens, spent usd,
-- cap of tokens, cap of usd (0: no cap), needed tokens, needed usd}; `usd` is micro-dollars
local caps = redis.call(
  'HMGET', KEYS[1], 'tenant_day_tokens', 'tenant_day_usd', 'day_tokens', 'day_usd',
  'tenant_open_jobs'
)
local function account(key, most_tokens, most_usd)
  local b = redis.pcall(
    'HMGET', key, 'input_tokens', 'output_tokens', 'usd', 'needed_tokens', 'needed_usd'
  )
  local function n(value) return figure(value, 0) end
  local verified = verified_at(verified_key_of(key))
  local function used(value, total) return math.max(n(value), verified[total]) end
  local tokens, usd = used(b[1], 'input_tokens') + used(b[2], 'output_tokens'), used(b[3], 'usd')
  return { tokens, usd, n(most_tokens), n(most_usd), n(b[4]), n(b[5]) }
end
local most_open = figure(caps[5], 0)
local open_jobs = { open_jobs_of(ARGV[1], most_open > 0 and most_open or math.huge), most_open }
local day = 'handoff:day:' .. today()
return {
  DAY_MS - now_ms() % DAY_MS, account(day .. ':' .. ARGV[1], caps[1], caps[2]),
  account(day, caps[3], caps[4]), open_jobs,
}
