-- Part of the scripts that write journals: the numbers of a job's handoffs, for readers that cannot
-- read thousands of events. The field `tally` of the job's hash has the counted version of the
-- journal, then the numbers of handoffs that were issued, ended ok, partial, needs_input and
-- failed, and were dropped. A process of another version may append events and not count them. Then
-- the tally is not updated any more, because no count is better than a wrong one.
local TALLIED = { 'version', 'issued', 'ok', 'partial', 'needs_input', 'failed', 'dropped' }

-- Return the text of a tally after `events` more events and the handoffs in `more`. Returns nil if
-- `tally` does not count up to `version`.
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

-- Return the new text of the field `failed_last` or `dropped_last` of the job's hash: the ids of
-- its newest failed or dropped handoffs, the newest last.
local MOST_NOTED = 20
local function noted(job, field, new)
  local all = {}
  for id in string.gmatch(redis.call('HGET', job, field) or '', '%S+') do all[#all + 1] = id end
  for _, id in ipairs(new) do all[#all + 1] = id end
  return table.concat(all, ' ', math.max(1, #all - MOST_NOTED + 1))
end
