-- Part of the scripts that write journals: the numbers of a job's handoffs, for readers that cannot
-- read thousands of events. `tally` of the job's progress: the numbers of handoffs that were
-- issued,
-- ended ok, partial, needs_input and failed, and were dropped.
local TALLIED = { 'issued', 'ok', 'partial', 'needs_input', 'failed', 'dropped' }
local EMPTY = '0 0 0 0 0 0'

-- Return the tally with further handoffs.
local function tally_on(tally, more)
  local FORM = '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$'
  local counts = { string.match(string.match(tally or EMPTY, FORM) and tally or EMPTY, FORM) }
  for place, name in ipairs(TALLIED) do counts[place] = whole(counts[place] + (more[name] or 0)) end
  return table.concat(counts, ' ')
end

-- Return the new text of the field `failed_last` or `dropped_last` of the job's progress: the ids
-- of its newest failed or dropped handoffs, the newest last.
local MOST_NOTED = 20
local function noted(job, field, new)
  local all = {}
  for id in string.gmatch(redis.call('HGET', progress_of(job), field) or '', '%S+') do
    all[#all + 1] = id
  end
  for _, id in ipairs(new) do all[#all + 1] = id end
  return table.concat(all, ' ', math.max(1, #all - MOST_NOTED + 1))
end
