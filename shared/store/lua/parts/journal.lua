-- The journal of a job: append events, and store payloads.

-- Return whether a field belongs to the progress of a job, and not to its hash.
local PROGRESS = {
  version = true, tip = true, tally = true, failed_last = true, failed_roles = true,
  dropped_last = true, calls = true, asked_last = true, asked_at = true,
}
local function is_progress(name)
  return PROGRESS[name] or string.find(name, '^approval:') or string.find(name, '^g:')
end

-- Append events to the journal after `version`, and set `fields` of the job and of its progress.
-- The field `title` has a key of its own.
-- Entry n has the stream id n-0, so a version is a place in the stream. Version and time of the
-- last event are the tip of the journal. Two different histories have different tips, also after a
-- restore of older data. Returns the new version.
-- `all` has `count` events from position `from` on.
local function append(job, version, all, from, count, at, fields)
  local log, now, last = job .. ':log', integer(at), version + count
  for n = 1, count do
    redis.call('XADD', log, integer(version + n) .. '-0', 'e', all[from + n - 1], 't', now)
  end
  local fixed, progress = {}, { version = integer(last), tip = now }
  for name, value in pairs(fields) do
    if name == 'title' then
      redis.call('SET', title_key(job), value, 'KEEPTTL')
    elseif is_progress(name) then
      progress[name] = value
    else
      fixed[name] = value
    end
  end
  set_fields(job, fixed)
  set_fields(progress_of(job), progress)
  return last
end

-- Return the text of the event of an entry of the journal, and its time (Unix ms) as text. An entry
-- is {stream id, {'e', event, 't', time}}.
local function entry_event(entry)
  return entry[2][2]
end

local function entry_time(entry)
  return entry[2][4]
end

-- Store pairs of digest and compressed payload, from position `from` of `all` to its end. A payload
-- that is stored already has the same content.
local MAX_AT_ONCE = 1000 -- values in one command: Lua's stack has room for a few thousand
local function keep_payloads(job, all, from)
  for first = from, #all, MAX_AT_ONCE do
    redis.call('HSET', job .. ':blob', unpack(all, first, math.min(first + MAX_AT_ONCE - 1, #all)))
  end
end
