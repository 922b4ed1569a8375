-- Daily budget of a tenant and of the installation: spent, allowed, and needed for new work. And
-- the open jobs of the tenant.
-- KEYS caps.  ARGV: tenant.  Returns {ms until the next day, the tenant's budget, the
-- installation's, {open jobs, most open jobs (0: no limit)}}; a budget is {spent tokens, spent usd,
-- cap of tokens, cap of usd (0: no cap), needed tokens, needed usd}; `usd` is micro-dollars
local tenant = ARGV[1]
local tenant_tokens, tenant_usd, day_tokens, day_usd, tenant_open_jobs = unpack(redis.call(
  'HMGET', KEYS[1], 'tenant_day_tokens', 'tenant_day_usd', 'day_tokens', 'day_usd',
  'tenant_open_jobs'
))
local function account(key, most_tokens, most_usd)
  local input, output, usd, needed_tokens, needed_usd = unpack(redis.pcall(
    'HMGET', key, 'input_tokens', 'output_tokens', 'usd', 'needed_tokens', 'needed_usd'
  ))
  local verified = verified_at(verified_key_of(key))
  input = math.max(number_or(input, 0), verified.input_tokens)
  output = math.max(number_or(output, 0), verified.output_tokens)
  usd = math.max(number_or(usd, 0), verified.usd)
  return {
    input + output, usd, number_or(most_tokens, 0), number_or(most_usd, 0),
    number_or(needed_tokens, 0), number_or(needed_usd, 0),
  }
end
local max_open = number_or(tenant_open_jobs, 0)
local open_jobs = open_jobs_of(tenant, max_open > 0 and max_open or math.huge)
local day = 'handoff:day:' .. today()
return {
  DAY_MS - now_ms() % DAY_MS, account(day .. ':' .. tenant, tenant_tokens, tenant_usd),
  account(day, day_tokens, day_usd), { open_jobs, max_open },
}
