-- Part of the scripts that write journals: the numbers of a job's handoffs, for readers that cannot
-- read thousands of events. The field `tally` of the job's progress has the numbers of handoffs
-- that were issued, ended ok, partial, needs_input and failed, and were dropped.

local TALLIED = { 'issued', 'ok', 'partial', 'needs_input', 'failed', 'dropped' }

-- Return the tally of a job with further handoffs. A worker may have written a text that is not a
-- tally, and the count starts again. `more`: number of further handoffs by state.
local function more_tally(job, more)
  local FORM = '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$'
  local tally = redis.call('HGET', progress_of(job), 'tally')
  local stored, counts = { string.match(tally or '', FORM) }, {}
  for place, name in ipairs(TALLIED) do
    counts[place] = integer((stored[place] or 0) + (more[name] or 0))
  end
  return table.concat(counts, ' ')
end

-- Return the new text of the field `failed_last` or `dropped_last` of the job's progress: the ids
-- of its newest failed or dropped handoffs, the newest last.
local MAX_NOTED = 20
local function newest_ids(job, field, new)
  local all = {}
  local stored = short(redis.call('HGET', progress_of(job), field)) or ''
  for id in string.gmatch(stored, '%S+') do all[#all + 1] = id end
  for _, id in ipairs(new) do all[#all + 1] = id end
  return table.concat(all, ' ', math.max(1, #all - MAX_NOTED + 1))
end
