-- The filter of the list of jobs. ARGV: score to start from ('+inf', or '(' and a score to start
-- below), lowest score, most jobs to read, most jobs to return, then tenant, mode, priority, text
-- in the title or the id (lower case), least cost and assigned specialist, each '' for any, then
-- statuses (none: any).

local FIRST_STATUS = 11

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

-- Return the status of a job that matches; nil if it does not, or if retention has removed it.
local function matching_status(id, wanted)
  local f = redis.call('HMGET', key_of(id), 'version', 'status', 'tenant', 'asks', 'asked_last', 'mode', 'priority', 'title', 'usd', 'assigned')
  if not f[1] or not is_any_or(ARGV[5], f[3] or 'default') then return nil end
  if not is_any_or(ARGV[6], f[6]) or not is_any_or(ARGV[7], f[7]) then return nil end
  if ARGV[8] ~= '' and not string.find(string.lower(id .. ' ' .. (f[8] or '')), ARGV[8], 1, true) then return nil end
  if ARGV[9] ~= '' and tonumber(f[9] or '0') < tonumber(ARGV[9]) then return nil end
  if ARGV[10] ~= '' and not has_word(f[10], ARGV[10]) then return nil end
  local status = waits_for_person(f[2], f[4], f[5], key_of(id)) and 'waiting' or f[2] or 'queued'
  if wanted and not wanted[status] then return nil end
  return status
end
