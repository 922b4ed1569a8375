-- Daily budget of a tenant and of the installation: spent, allowed, and needed for new work. Reads
-- only.
-- KEYS caps.  ARGV: tenant.  Returns {ms until the next day, the tenant's budget, the
-- installation's}; each is {spent tokens, spent usd, cap of tokens, cap of usd (0: no cap), needed
-- tokens, needed usd}; `usd` is micro-dollars
local caps = redis.call('HMGET', KEYS[1], 'tenant_day_tokens', 'tenant_day_usd', 'day_tokens', 'day_usd')
local function account(key, most_tokens, most_usd)
  local b = redis.pcall('HMGET', key, 'input_tokens', 'output_tokens', 'usd', 'needed_tokens', 'needed_usd')
  local function n(value) return figure(value, 0) end
  return { n(b[1]) + n(b[2]), n(b[3]), n(most_tokens), n(most_usd), n(b[4]), n(b[5]) }
end
local day = 'handoff:day:' .. today()
return { DAY_MS - now_ms() % DAY_MS, account(day .. ':' .. ARGV[1], caps[1], caps[2]), account(day, caps[3], caps[4]) }
