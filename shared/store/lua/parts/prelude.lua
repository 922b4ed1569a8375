-- Part of every script: the clock, the journal, the right to write, times to live.

-- Format a number that Lua has computed as an integer for Redis, which does not take -0 and 1e+15.
-- redis.call is slow with numbers.
local function whole(number)
  return string.format('%d', number)
end

-- Return a stored statistical figure, or `otherwise` if it is not a finite number: bad data must
-- not stop a job.
local function figure(text, otherwise)
  local number = tonumber(text)
  if not number or number ~= number or math.abs(number) > 2 ^ 53 then return otherwise end
  return number
end

-- Return the time in Unix ms by Redis's clock. It stays the same while a script runs.
local read_ms
local function now_ms()
  if not read_ms then
    local t = redis.call('TIME')
    read_ms = t[1] * 1000 + math.floor(t[2] / 1000)
  end
  return read_ms
end

-- Set fields of a hash at once; '' removes a field.
local function put(key, fields)
  local set, removed = {}, {}
  for name, value in pairs(fields) do
    if value == '' then
      removed[#removed + 1] = name
    else
      set[#set + 1], set[#set + 2] = name, value
    end
  end
  if #set > 0 then redis.call('HSET', key, unpack(set)) end
  if #removed > 0 then redis.call('HDEL', key, unpack(removed)) end
end

-- Return the key with the progress of a job: the facts that workers write. The job's hash itself is
-- read-only for workers.
local function progress_of(job)
  return job .. ':progress'
end

-- Return whether a field belongs to the progress of a job, and not to its hash.
local PROGRESS = { version = true, tip = true, tally = true, failed_last = true, failed_roles = true, dropped_last = true, calls = true, asked_last = true, asked_at = true }
local function is_progress(name)
  return PROGRESS[name] or string.find(name, '^approval:') or string.find(name, '^g:')
end

-- Append events to the journal after `version`, and set `fields` of the job and of its progress. Entry n has the
-- stream id n-0, so a version is a place in the stream. Version and time of the last event are the
-- tip of the journal. Two different histories have different tips, also after a restore of older
-- data. Returns the new version.
-- `all` has `count` events from position `from` on.
local function append(job, version, all, from, count, at, fields)
  local log, now, last = job .. ':log', whole(at), version + count
  for n = 1, count do redis.call('XADD', log, whole(version + n) .. '-0', 'e', all[from + n - 1], 't', now) end
  local fixed, progress = {}, { version = whole(last), tip = now }
  for name, value in pairs(fields) do
    if is_progress(name) then progress[name] = value else fixed[name] = value end
  end
  put(job, fixed)
  put(progress_of(job), progress)
  return last
end

-- Store pairs of digest and compressed payload, from position `from` of `all` to its end. A payload
-- that is stored already has the same content.
local MOST_AT_ONCE = 1000 -- values in one command: Lua's stack has room for a few thousand
local function keep_payloads(job, all, from)
  for first = from, #all, MOST_AT_ONCE do
    redis.call('HSET', job .. ':blob', unpack(all, first, math.min(first + MOST_AT_ONCE - 1, #all)))
  end
end

-- Return facts of a job: its version (nil: there is no such job), whether it was cancelled, its
-- parent (`job/handoff`), its tenant, the key with the money of its schedule's month, the number of
-- its users' messages, and the mode of its request ('': unknown). A script reads them once, so they
-- are those of its first question. No script asks for a fact before `commit` changes it. Only
-- `take_messages` uses the number of the version.
local jobs_read = {}
local function job_of(job)
  local known = jobs_read[job]
  if not known then
    local f = redis.call('HMGET', job, 'status', 'cancelled', 'parent', 'tenant', 'month', 'messages', 'mode')
    local version = f[1] and redis.call('HGET', progress_of(job), 'version')
    known = { version = tonumber(version), cancelled = f[2], parent = f[3], tenant = f[4] or 'default', month = f[5], messages = f[6], mode = f[7] or '' }
    jobs_read[job] = known
  end
  return known
end

-- Return whether a message's fence is the fence of a claim. `kept`: the hash's field `fence`, which
-- is the SHA-1 of the fence, so that a reader of Redis cannot write as the claim's holder. The fence
-- of a child job's claim is the id of the child, and is kept as it is.
local function is_fence(kept, fence)
  if not kept then return false end
  return kept == redis.sha1hex(fence) or (kept == fence and string.sub(fence, 1, 2) == 'j-')
end

-- Return why this claim may not write: nil (it may), 'lost' (the handoff has another claim, has
-- none, or has ended) or 'dropped' (no job needs it). `version`: of the job; `f`: fence and state
-- of the handoff. A script must not write to a deleted or expired job: its hash would exist again,
-- incomplete and without expiry.
local function gone(version, f, fence)
  if not version or f[2] == 'dropped' then return 'dropped' end
  if f[2] ~= 'running' or not is_fence(f[1], fence) then return 'lost' end
  return nil
end

-- Record a claim that ended without a result, as a line of the field `past_claims` of the handoff's
-- hash, the newest last. A line has the beginning and the end (Unix ms), the reason of the end, and
-- the holder. `how` is a value of `ClaimEnd`: lost | released | deferred | paused | asked.
local MOST_PAST_CLAIMS = 20
local function note_claim_end(h, until_ms, how)
  local f = redis.call('HMGET', h, 'claimed_at', 'worker', 'past_claims')
  if not f[1] then return end
  local lines = {}
  for line in string.gmatch(f[3] or '', '[^\n]+') do lines[#lines + 1] = line end
  lines[#lines + 1] = table.concat({ f[1], until_ms, how, f[2] or '' }, ' ')
  redis.call('HSET', h, 'past_claims', table.concat(lines, '\n', math.max(1, #lines - MOST_PAST_CLAIMS + 1)))
  redis.call('HDEL', h, 'claimed_at', 'turn_at')
end

-- End a claim without a result and without fault. It does not count as a claim, and later messages
-- with its fence are refused. `how`: see `note_claim_end`.
local function give_back(h, how)
  note_claim_end(h, whole(now_ms()), how)
  redis.call('HINCRBY', h, 'claims', '-1')
  redis.call('HDEL', h, 'fence')
  redis.call('HSET', h, 'state', 'issued', 'lease', '0')
end

-- Count and record a claim whose process is dead or treated as dead. The last heartbeat counts as
-- its end.
local function count_lost(job, h)
  add_to_figure(h, 'lost_claims', '1')
  add_to_metric('1', 'lease_losses', label('tenant', job_of(job).tenant), label('role', redis.call('HGET', h, 'role') or ''))
  note_claim_end(h, redis.call('HGET', h, 'heartbeat') or whole(now_ms()), 'lost')
end

-- Return the key of a job. A text that is no id of a job, which another program may have written
-- into a set of jobs, has the key of a job that never exists. Otherwise `ID}:h:ROLE:x` would name a
-- hash that a worker may write, and a script would follow it as a job.
local function key_of(id)
  local is_id = #id == 14 and string.find(id, '^j%-[0-9a-f]+$')
  return 'handoff:{' .. (is_id and id or 'j-no-such-job!') .. '}'
end

-- Return the role of a handoff, from the hash that only clients and supervisors write; false if the
-- job has no such handoff. It is read once in a script.
local roles_read = {}
local function role_of(job, handoff)
  local name = job .. handoff
  if roles_read[name] == nil then roles_read[name] = redis.call('HGET', job .. ':roles', handoff) end
  return roles_read[name]
end

-- Return the key with the state of a handoff. Its name has the role, so that a worker can have the
-- keys of its own roles only. An unknown handoff has a key that never exists.
local function handoff_key(job, handoff)
  local role = role_of(job, handoff)
  return role and job .. ':h:' .. role .. ':' .. handoff or 'handoff:nothing'
end

-- Return the key with the turns of a handoff.
local function turns_key(job, handoff)
  local role = role_of(job, handoff)
  return role and job .. ':t:' .. role .. ':' .. handoff or 'handoff:nothing'
end

-- Return whether a job waits for a person: an open job that asks for a decision, or whose newest
-- question has no answer.
local function waits_for_person(status, asks, asked_last, job)
  if status ~= 'queued' and status ~= 'running' then return false end
  if asks and asks ~= '' then return true end
  return asked_last and redis.call('HEXISTS', progress_of(job), 'approval:' .. asked_last) == 1
end

local function id_of(job)
  return string.sub(job, #'handoff:{' + 1, -2)
end

local PAST_KEPT_MS = 90 * 24 * 3600 * 1000 -- of the history that quotes are computed from

-- Return whether a text of words has this word. `text` nil: no words.
local function has_word(text, word)
  return text and string.find(' ' .. text .. ' ', ' ' .. word .. ' ', 1, true) ~= nil
end

-- Push a text to a list that keeps the newest `most` texts, the newest first.
local function keep_newest(list, text, most, keep_ms)
  local length = redis.pcall('LPUSH', list, text)
  if type(length) == 'table' then -- the key is not a list: start again
    redis.call('DEL', list)
    length = redis.call('LPUSH', list, text)
  end
  if length > most then redis.call('LTRIM', list, '0', most - 1) end
  redis.call('PEXPIRE', list, whole(keep_ms))
end

-- Return the keys of a child job's parent and of the parent's handoff that the child does; nil if
-- the job has no parent, or the parent is gone. Both are read once in a script.
local function above(job)
  local known = job_of(job)
  if known.parent then
    local id, handoff = string.match(known.parent, '^(.-)/(.+)$')
    local outer = key_of(id)
    local h = handoff_key(outer, handoff)
    if redis.call('EXISTS', outer) + redis.call('EXISTS', h) == 2 then known.outer, known.outer_h = outer, h end
    known.parent = nil
  end
  return known.outer, known.outer_h
end

-- Most jobs above a job that a script follows: more than `MOST_DEPTH` of `types/limits.py`. A program
-- may have written a job that is its own parent, and no script may run for ever.
local MOST_LEVELS = 16

-- Return whether the job or any job above it was cancelled.
local function is_cancelled(job)
  for _ = 0, MOST_LEVELS do
    if not job then return false end
    if job_of(job).cancelled then return true end
    job = above(job)
  end
  return false
end

-- Return the ms that the data of a running job must stay: until the deadline (Unix ms; 0: there is
-- none), and then for the retention `keep_ms`.
local function keep_from_now(keep_ms, deadline)
  return tonumber(keep_ms) + math.max(0, tonumber(deadline) - now_ms())
end

-- Return the ms until a key expires, read once in a script; -2: there is no such key.
local times_left = {}
local function left_of(key)
  times_left[key] = times_left[key] or redis.call('PTTL', key)
  return times_left[key]
end

-- Extend the time to live of a key to `ms`, and never shorten it. Returns whether it was extended.
local function prolong(key, ms)
  local left = left_of(key)
  local is_short = left ~= -2 and left < ms
  if is_short then
    redis.call('PEXPIRE', key, whole(ms))
    times_left[key] = ms
  end
  return is_short
end

-- Extend the time to live of a job and of one of its handoffs (nil: none). Journal, payloads,
-- roles and progress live as long as the job's hash.
local function stay(job, h, ms)
  if prolong(job, ms) then
    redis.call('PEXPIRE', job .. ':log', whole(ms))
    redis.call('PEXPIRE', job .. ':blob', whole(ms))
    redis.call('PEXPIRE', job .. ':roles', whole(ms))
    redis.call('PEXPIRE', progress_of(job), whole(ms))
  end
  if h then prolong(h, ms) end
end

-- Return the keys of a job and of all its child jobs at any depth, each once. `children`: ids with
-- spaces between, or nil.
local function with_children(job, children)
  local seen, found, rest = { [job] = true }, {}, { { job, children } }
  while #rest > 0 do
    local key, below = unpack(table.remove(rest))
    found[#found + 1] = key
    for child in string.gmatch(below or '', '%S+') do
      local inner = key_of(child)
      if not seen[inner] then
        seen[inner] = true
        rest[#rest + 1] = { inner, redis.call('HGET', inner, 'children') }
      end
    end
  end
  return found
end

-- Extend a job, all its child jobs at any depth, and their fetched pages. Only decisions do so: a
-- worker may not set the time to live of a job.
local function stay_whole(job, children, ms)
  for _, key in ipairs(with_children(job, children)) do
    stay(key, nil, ms)
    prolong(key .. ':fetched', ms)
  end
end

local function decoded(text)
  if text == '' then return nil end
  return cjson.decode(text)
end

-- Return the sets that a waiting handoff may be in besides the queue's waiting set: the set of its
-- tenant, or the sets of all tenants if its job is gone. A wake-up, which is a job, is in no such
-- set.
local function sets_of_tenant(queue, member)
  local id = string.match(member, '^(.-)/')
  if not id then return {} end
  local set, job = 'handoff:waiting:' .. queue .. '/', job_of(key_of(id))
  if job.version then return { set .. label('tenant', job.tenant) } end
  local sets = { set .. OTHER }
  for n, tenant in ipairs(labelled_tenants()) do sets[n + 1] = set .. tenant end
  return sets
end

-- Note that these entries wait in a queue. `entries`: time (Unix ms) and member, in turn, from
-- position `first` to `last`; all are of one job.
local function note_waiting(queue, entries, first, last)
  redis.call('ZADD', 'handoff:waiting:' .. queue, unpack(entries, first, last))
  for _, set in ipairs(sets_of_tenant(queue, entries[2])) do redis.call('ZADD', set, unpack(entries, first, last)) end
end

-- Note handoffs or wake-ups that their sender will publish to this queue. While they are in no
-- queue, the sorted set `handoff:out:QUEUE` has them, too. `entries`: see `note_waiting`.
local function send_off(queue, entries)
  for first = 1, #entries, MOST_AT_ONCE do
    local last = math.min(first + MOST_AT_ONCE - 1, #entries)
    note_waiting(queue, entries, first, last)
    redis.call('ZADD', 'handoff:out:' .. queue, unpack(entries, first, last))
  end
end

-- Remove an entry that no longer waits in this queue.
local function forget(queue, member)
  redis.call('ZREM', 'handoff:waiting:' .. queue, member)
  redis.call('ZREM', 'handoff:out:' .. queue, member)
  for _, set in ipairs(sets_of_tenant(queue, member)) do redis.call('ZREM', set, member) end
end

-- Note that a supervisor has evaluated a job with this status, so that its wake-up no longer waits.
-- Only a job that has not begun can have an entry in the queue of submissions.
local function note_evaluated(id, status)
  forget('supervisor', id)
  if not status or status == 'queued' then forget('submissions', id) end
end
