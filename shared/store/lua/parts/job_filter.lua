-- The filter of the list of jobs. ARGV: score to start from ('+inf', or '(' and a score to start
-- below), lowest score, most jobs to read, most jobs to return, then tenant, mode, priority, text
-- in the title or the id (lower case), least cost, assigned specialist and failed specialist, each
-- '' for any, then statuses (none: any).

local FIRST_STATUS = 12

-- Return the wanted statuses as a set; nil for any.
local function wanted_statuses()
  if #ARGV < FIRST_STATUS then return nil end
  local wanted = {}
  for n = FIRST_STATUS, #ARGV do wanted[ARGV[n]] = true end
  return wanted
end

local function is_any_or(wanted, value)
  return wanted == '' or wanted == value
end

local STORED = {
  queued = true, running = true, ok = true, partial = true, failed = true, cancelled = true,
}

-- Return the status of a job that matches; nil if it does not, or if retention has removed it.
-- Another program may have written a key of another type (`f.err`), or another status.
local function matching_status(id, wanted)
  local f = redis.pcall(
    'HMGET', key_of(id), 'status', 'tenant', 'asks', 'mode', 'priority', 'title', 'assigned'
  )
  if f.err then f = { '', '' } end
  if not f[1] or not is_any_or(ARGV[5], f[2] or 'default') then return nil end
  if not is_any_or(ARGV[6], f[4]) or not is_any_or(ARGV[7], f[5]) then return nil end
  if ARGV[8] ~= ''
    and not string.find(string.lower(id .. ' ' .. (f[6] or '')), ARGV[8], 1, true)
  then
    return nil
  end
  local p = redis.pcall('HMGET', progress_of(key_of(id)), 'usd', 'asked_last', 'failed_roles')
  if p.err then p = {} end
  if ARGV[9] ~= '' and figure(p[1], 0) < tonumber(ARGV[9]) then return nil end
  if ARGV[10] ~= '' and not has_word(f[7], ARGV[10]) then return nil end
  if ARGV[11] ~= '' and not has_word(p[3], ARGV[11]) then return nil end
  local status = waits_for_person(f[1], f[3], p[2], key_of(id)) and 'waiting' or f[1]
  if status ~= 'waiting' and not STORED[status] then status = 'unreadable' end
  if wanted and not wanted[status] then return nil end
  return status
end
