-- What a tenant and the installation have spent today, and may spend. Reads only.
-- KEYS caps.  ARGV tenant.  Returns {ms until the next day, {tokens, usd of the tenant}, {its caps}, {tokens, usd of all}, {their caps}}
local function spent(key)
  local b = redis.call('HMGET', key, 'input_tokens', 'output_tokens', 'usd')
  return { tonumber(b[1] or 0) + tonumber(b[2] or 0), tonumber(b[3] or 0) }
end
local day = 'handoff:day:' .. today()
local caps = redis.call('HMGET', KEYS[1], 'tenant_day_tokens', 'tenant_day_usd', 'day_tokens', 'day_usd')
for i = 1, 4 do caps[i] = tonumber(caps[i] or 0) end
return { DAY_MS - now_ms() % DAY_MS, spent(day .. ':' .. ARGV[1]), { caps[1], caps[2] }, spent(day), { caps[3], caps[4] } }
