-- List the jobs that match a filter, the newest first. Reads only, and a bounded part of the list.
-- KEYS jobs.  ARGV: score to start from ('+inf', or '(' and a score to start below), most jobs to
-- read, most jobs to return, tenant or '' (any), then statuses (none: any).
-- Returns {score to continue from ('' at the end of the list), matching jobs}. Jobs that retention
-- has removed do not match.
local jobs, most, tenant = KEYS[1], tonumber(ARGV[3]), ARGV[4]
local wanted, is_any = {}, #ARGV == 4
for n = 5, #ARGV do wanted[ARGV[n]] = true end
local entries = redis.call('ZREVRANGEBYSCORE', jobs, ARGV[1], '-inf', 'WITHSCORES', 'LIMIT', '0', ARGV[2])
local ids, go_on = {}, ''
for n = 1, #entries, 2 do
  local id = entries[n]
  go_on = '(' .. entries[n + 1]
  local f = redis.call('HMGET', key_of(id), 'version', 'status', 'tenant', 'asks', 'asked_last')
  local is_of_tenant = tenant == '' or tenant == (f[3] or 'default')
  local status = waits_for_person(f[2], f[4], f[5], key_of(id)) and 'waiting' or f[2] or 'queued'
  if f[1] and is_of_tenant and (is_any or wanted[status]) then ids[#ids + 1] = id end
  if #ids == most then return { go_on, ids } end
end
if #entries < 2 * tonumber(ARGV[2]) then go_on = '' end
return { go_on, ids }
