-- In front of the scripts that write journals: what has become of a job's handoffs, for whoever cannot read thousands of events to know it.
-- `tally` of the job's hash: the version up to which it has counted, then how many were issued, have ended ok, partial, needs_input and failed, and
-- were dropped. Where a version of ours that does not count has written in between, it stays behind for ever: no count is better than a wrong one.
local TALLIED = { 'version', 'issued', 'ok', 'partial', 'needs_input', 'failed', 'dropped' }

-- The tally that was written up to `version`, with so many events more, and more of what it counts; nil: it was not.
local EMPTY = '0 0 0 0 0 0 0'
local function tally_on(tally, version, events, more)
  local counts = { string.match(tally or EMPTY, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$') }
  if tonumber(counts[1]) ~= version then return nil end
  for place, name in ipairs(TALLIED) do
    local new = more[name]
    if new and new ~= 0 then counts[place] = whole(counts[place] + new) end
  end
  counts[1] = whole(version + events)
  return table.concat(counts, ' ')
end

-- `failed_last` and `dropped_last` of the job's hash: the newest that were, the newest last. Read only where there is one more.
local MOST_NOTED = 20
local function noted(job, field, new)
  local all = {}
  for id in string.gmatch(redis.call('HGET', job, field) or '', '%S+') do all[#all + 1] = id end
  for _, id in ipairs(new) do all[#all + 1] = id end
  return table.concat(all, ' ', math.max(1, #all - MOST_NOTED + 1))
end
