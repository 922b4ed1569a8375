-- Retention: the time to live of jobs and handoffs, and of their payloads.

local PAST_KEPT_MS = 90 * 24 * 3600 * 1000 -- of the history that quotes are computed from

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
local function extend_key(key, ms)
  local left = left_of(key)
  local is_short = left ~= -2 and left < ms
  if is_short then
    redis.call('PEXPIRE', key, integer(ms))
    times_left[key] = ms
  end
  return is_short
end

-- Extend the time to live of a job and of one of its handoffs (nil: none). Journal, payloads,
-- agents and progress live as long as the job's hash.
local function extend_job(job, handoff_hash, ms)
  if extend_key(job, ms) then
    redis.call('PEXPIRE', log_of(job), integer(ms))
    redis.call('PEXPIRE', job .. ':newest', integer(ms))
    redis.call('PEXPIRE', job .. ':blob', integer(ms))
    redis.call('PEXPIRE', job .. ':agents', integer(ms))
    redis.call('PEXPIRE', title_key(job), integer(ms))
    redis.call('PEXPIRE', progress_of(job), integer(ms))
  end
  if handoff_hash then extend_key(handoff_hash, ms) end
end

-- Extend a job, all its child jobs at any depth, and their fetched pages. Only decisions do so: a
-- worker may not set the time to live of a job.
local function extend_job_tree(job, children, ms)
  for _, key in ipairs(with_children(job, children)) do
    extend_job(key, nil, ms)
    extend_key(key .. ':fetched', ms)
  end
end

-- Shorten the time to live of an ended job and its handoffs. Otherwise an ended job would stay for
-- its unused time, such as the weeks of an approval.
local function shorten_job(job, ms)
  local handoffs = redis.call('HKEYS', job .. ':agents')
  for _, handoff in ipairs(handoffs) do
    redis.call('PEXPIRE', handoff_key(job, handoff), integer(ms))
    redis.call('PEXPIRE', turns_key(job, handoff), integer(ms))
  end
  local parts = {
    '', ':progress', ':log', ':newest', ':blob', ':fetched', ':agents', ':title',
  }
  for _, part in ipairs(parts) do redis.call('PEXPIRE', job .. part, integer(ms)) end
end
