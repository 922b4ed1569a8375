-- The journal of a job: append events, and store payloads.
--
-- The journal is a list. Entry n is event n: its time (Unix ms), a space, and the event as JSON.
-- A worker may only append to the list (`RPUSH`), so it can remove and change no event.

-- Return whether a field belongs to the progress of a job, and not to its hash.
local PROGRESS = {
  tally = true, failed_last = true, failed_agents = true,
  dropped_last = true, calls = true, asked_last = true, asked_at = true,
}
local function is_progress(name)
  return PROGRESS[name] or string.find(name, '^approval:') or string.find(name, '^g:')
end

-- Append events to the journal, and set `fields` of the job and of its progress. The field `title`
-- has a key of its own. `all` has `count` events from position `from` on. Returns the new version.
-- A second key wakes the readers that wait for a version. A worker can make its command fail, and
-- readers then find the events later.
local function append(job, all, from, count, at, fields)
  local version
  for place = from, from + count - 1 do
    version = redis.call('RPUSH', log_of(job), integer(at) .. ' ' .. all[place])
  end
  version = version or version_of(job)
  redis.pcall('XADD', job .. ':newest', 'MAXLEN', '1', integer(version) .. '-0', 'v', '')
  local fixed, progress = {}, {}
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
  return version
end

-- Bytes of the longest entry that a worker writes. An event of a worker has at most about 20 KB.
local MAX_WORKER_BYTES = 2 ^ 16
local MAX_TIME_DIGITS = 14 -- as in `journal.py`

-- Append events as `append`, in a script that no worker may run to its end, because it writes the
-- hash of the job. The field `written` of the job has the version of the newest such event. So a
-- decision can tell that only workers have appended since. The field `long_events` has the versions
-- of the long ones. So readers can tell that no worker has written them.
local function append_trusted(job, all, from, count, at, fields)
  local version = version_of(job)
  fields.written = integer(version + count)
  for place = from, from + count - 1 do
    if #all[place] > MAX_WORKER_BYTES - MAX_TIME_DIGITS - 1 then
      local earlier = fields.long_events or redis.call('HGET', job, 'long_events')
      local long = integer(version + place - from + 1)
      fields.long_events = earlier and earlier .. ' ' .. long or long
    end
  end
  return append(job, all, from, count, at, fields)
end

-- Return the entries of the journal after a version: at most `most` entries, and at most
-- `most_bytes` bytes or one entry. Of an entry that is too long for a worker, and that no other
-- process has written, only the beginning is returned.
local CUT_OFF = ' bytes are too long for an event of a worker]' -- as in `journal.py`
local BEGINNING_BYTES = 300
local function entries_after(job, after, most, most_bytes)
  local entries, bytes, long_events = {}, 0, nil
  local last = math.min(version_of(job), after + most) - 1
  for entry, place in each_entry(log_of(job), after, last) do
    if #entry > MAX_WORKER_BYTES then
      long_events = long_events or redis.call('HGET', job, 'long_events') or ''
      if not has_word(long_events, integer(place + 1)) then
        entry = string.sub(entry, 1, BEGINNING_BYTES) .. ' [' .. integer(#entry) .. CUT_OFF
      end
    end
    bytes = bytes + #entry
    if bytes > most_bytes and #entries > 0 then break end
    entries[#entries + 1] = entry
  end
  return entries
end

-- Return the JSON of the event of an entry; '' if the entry has another form, or is too long for an
-- event of a worker.
local function entry_event(entry)
  return #entry <= MAX_WORKER_BYTES and string.match(entry, '^%d+ (.*)$') or ''
end

-- Return the time (Unix ms) of an entry; 0 if the entry has another form.
local function entry_time(entry)
  local digits = string.match(entry or '', '^(%d+) ')
  return digits and #digits <= MAX_TIME_DIGITS and tonumber(digits) or 0
end

-- Return the time of the last event. Two histories of the same length have different times, also
-- after a restore of older data.
local function newest_time(job)
  return entry_time(redis.call('LINDEX', log_of(job), '-1'))
end

-- Store pairs of digest and compressed payload, from position `from` of `all` to its end.
local function keep_payloads(job, all, from)
  for first = from, #all, MAX_AT_ONCE do
    redis.call('HSET', job .. ':blob', unpack(all, first, math.min(first + MAX_AT_ONCE - 1, #all)))
  end
end

-- Store payloads as `keep_payloads`, but no digest that has a payload already. A worker may only do
-- this, so it can change and remove no payload.
local function add_payloads(job, all, from)
  for place = from, #all, 2 do
    redis.call('HSETNX', job .. ':blob', all[place], all[place + 1])
  end
end
