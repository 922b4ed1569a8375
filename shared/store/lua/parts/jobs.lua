-- Jobs and their handoffs: keys, agents, facts of a job, the jobs above and below it.

-- Return the key with the progress of a job: the facts that workers write. The job's hash itself is
-- read-only for workers.
local function progress_of(job)
  return job .. ':progress'
end

-- Return the key with the journal of a job: see `parts/journal.lua`.
local function log_of(job)
  return job .. ':log'
end

-- Return the version of the journal, which is the number of its events.
local function version_of(job)
  return redis.call('LLEN', log_of(job))
end

-- Return the key with the title of a job, which no worker may read.
local function title_key(job)
  return job .. ':title'
end

-- Return the title of a job; '' if it has none.
local function title_of(job)
  local title = redis.pcall('GET', title_key(job))
  return type(title) == 'string' and title or ''
end

-- Return whether a text is the id of a job.
local function is_job_id(id)
  return #id == 18 and string.find(id, '^j%-[a-z2-7]+$') ~= nil
    or #id == 14 and string.find(id, '^j%-[0-9a-f]+$') ~= nil
end

local function id_of(job)
  return string.sub(job, #'handoff:{' + 1, -2)
end

-- Return facts of a job: its version (nil: there is no such job), whether it was cancelled, its
-- parent (`job/handoff`), its tenant, the key with the money of its schedule's month, the number of
-- its users' messages, and the mode of its request ('': unknown). A script reads them once, so they
-- are those of its first question. No script asks for a fact before `commit` changes it. Only
-- `take_messages` uses the number of the version. A key of another form has no facts: a worker may
-- call a script with a hash of its own as the job.
local jobs_read = {}
local function job_of(job)
  local known = jobs_read[job]
  if not known then
    local status, cancelled, parent, tenant, month, messages, mode
    if is_job_id(id_of(job)) then
      status, cancelled, parent, tenant, month, messages, mode = unpack(redis.call(
        'HMGET', job, 'status', 'cancelled', 'parent', 'tenant', 'month', 'messages', 'mode'
      ))
    end
    known = {
      version = status and version_of(job), cancelled = cancelled, parent = parent,
      tenant = tenant or 'default', month = month, messages = messages, mode = mode or '',
    }
    jobs_read[job] = known
  end
  return known
end

-- Return the key of a job. Another program may write a text that is not an id of a job into a set
-- of jobs. Such a text has the key of a job that never exists. Otherwise `ID}:h:AGENT:x` would name
-- a hash that a worker may write, and a script would follow it as a job.
local function key_of(id)
  return 'handoff:{' .. (is_job_id(id) and id or 'j-no-such-job!') .. '}'
end

-- Return the member `job/handoff` of the sorted sets, for a handoff of a job.
local function member_of(job, handoff)
  return id_of(job) .. '/' .. handoff
end

-- Return the id of the job and the handoff of a member `job/handoff`; nil for another text.
local function split_member(member)
  return string.match(member, '^(.-)/(.+)$')
end

-- Return the agent of a handoff, from the hash that only clients and supervisors write; false if
-- the job has no such handoff. It is read once in a script.
local agents_read = {}
local function agent_of(job, handoff)
  local name = job .. handoff
  if agents_read[name] == nil then
    agents_read[name] = redis.call('HGET', job .. ':agents', handoff)
  end
  return agents_read[name]
end

-- Return a key of a handoff. Its name has the agent, so that a worker can have the keys of its own
-- agents only. An unknown handoff has a key that never exists.
local function key_of_handoff(job, kind, handoff)
  local agent = agent_of(job, handoff)
  return agent and job .. kind .. agent .. ':' .. handoff or 'handoff:nothing'
end
local function handoff_key(job, handoff) return key_of_handoff(job, ':h:', handoff) end
local function turns_key(job, handoff) return key_of_handoff(job, ':t:', handoff) end
local function draft_key(job, handoff) return key_of_handoff(job, ':draft:', handoff) end

-- Return the set with the due time of a handoff. Workers write the sets of their own agents, and
-- only clients and supervisors write `handoff:due`, which has all handoffs of the supervisor's own
-- roles. A worker also wakes a job through the set of its handoff.
local function due_of(job, handoff)
  local agent = agent_of(job, handoff)
  return agent and not OWN_ROLES[agent] and 'handoff:due:' .. agent or 'handoff:due'
end

-- Make a job due in a second at the latest, so that a supervisor evaluates a new event even if the
-- wake-up is lost.
local function make_due_soon(due, job, at)
  redis.call('ZADD', due, 'LT', integer(at + 1000), id_of(job))
end

-- Return whether a job waits for a person: an open job that asks for a decision, or whose newest
-- question has no answer.
local function waits_for_person(status, asks, asked_last, job)
  if status ~= 'queued' and status ~= 'running' then return false end
  if asks and asks ~= '' then return true end
  return asked_last and redis.call('HEXISTS', progress_of(job), 'approval:' .. asked_last) == 1
end

-- Return the keys of a child job's parent and of the parent's handoff that the child does; nil if
-- the job has no parent, or the parent is gone. Both are read once in a script.
local function parent_of(job)
  local known = job_of(job)
  if known.parent then
    local id, handoff = split_member(known.parent)
    local outer = key_of(id)
    local handoff_hash = handoff_key(outer, handoff)
    if redis.call('EXISTS', outer) + redis.call('EXISTS', handoff_hash) == 2 then
      known.outer, known.outer_h = outer, handoff_hash
    end
    known.parent = nil
  end
  return known.outer, known.outer_h
end

-- Most jobs above a job that a script follows: more than `MAX_DEPTH` of `types/limits.py`. A
-- program may have written a job that is its own parent, and no script may run without end.
local MAX_LEVELS = 16

-- Return whether the job or any job above it was cancelled.
local function is_cancelled(job)
  for _ = 0, MAX_LEVELS do
    if not job then return false end
    if job_of(job).cancelled then return true end
    job = parent_of(job)
  end
  return false
end

-- Return the keys of a job and of all its child jobs at any depth, each once. `children`: ids with
-- spaces between, or nil.
local function with_children(job, children)
  local seen, job_keys, rest = { [job] = true }, {}, { { job, children } }
  while #rest > 0 do
    local key, below = unpack(table.remove(rest))
    job_keys[#job_keys + 1] = key
    for child in string.gmatch(below or '', '%S+') do
      local inner = key_of(child)
      if not seen[inner] then
        seen[inner] = true
        rest[#rest + 1] = { inner, redis.call('HGET', inner, 'children') }
      end
    end
  end
  return job_keys
end
