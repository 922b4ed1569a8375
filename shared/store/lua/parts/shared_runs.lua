-- Part of the scripts that claim and end handoffs: one run for equal handoffs of a tenant. The
-- sorted set `handoff:shared_run:AGENT:NAME` has the handoffs with the same request; NAME is its
-- digest. The handoff with the score 0 runs, and the others wait. The hash of a handoff has
-- `shares` (NAME), `follows` (the member that it waits for, or has waited for), `follows_since`
-- (Unix ms), and `proof` after a run that others may copy: the signature of its worker (''
-- without keys).

local FOLLOWS_FOR_MS = 30 * 1000 -- then a waiting handoff looks again, if nothing has woken it
local MAX_WOKEN = 1000 -- by one script; the others look again

local function run_key(agent, name)
  return 'handoff:shared_run:' .. agent .. ':' .. name
end

-- Return the keys of the handoff and of the job of a member of the set; nil if it is not a handoff
-- of this agent and of the tenant of `job`.
local function sharing_handoff(job, member, agent)
  local id, handoff = split_member(member)
  local other = id and key_of(id)
  if not other or agent_of(other, handoff) ~= agent then return nil end
  local theirs = job_of(other)
  if not theirs.version or theirs.tenant ~= job_of(job).tenant then return nil end
  return handoff_key(other, handoff), other
end

-- Return the result of an ended run that may be copied: job, handoff, digest of the result, proof.
local function result_of_run(job, member, agent, name)
  local handoff_hash = sharing_handoff(job, member, agent)
  if not handoff_hash then return nil end
  local state, status, shares, result, proof = unpack(
    redis.call('HMGET', handoff_hash, 'state', 'status', 'shares', 'result', 'proof')
  )
  if state ~= 'done' or status ~= 'ok' or shares ~= name or not proof then return nil end
  local id, handoff = split_member(member)
  return { id, handoff, result, proof }
end

-- Return whether a member of the set runs, or will run again after a lost claim.
local function is_running(job, member, agent, name)
  local handoff_hash, other = sharing_handoff(job, member, agent)
  if not handoff_hash or is_cancelled(other) then return false end
  local state, shares = unpack(redis.call('HMGET', handoff_hash, 'state', 'shares'))
  return (state == 'running' or state == 'issued') and shares == name
end

-- Return whether the request of a job excludes shared runs. The jobs below have the same request.
local function runs_alone(job)
  for _ = 0, MAX_LEVELS do
    if not job then return false end
    if redis.call('HEXISTS', job, 'alone') == 1 then return true end
    job = parent_of(job)
  end
  return false
end

-- Decide how a handoff shares its run. `deadline`: Unix ms (0: none); `may_wait`: whether no claim
-- holds the handoff. Returns nil (it runs itself), 'following' (it waits now), or the result that
-- it copies: see `result_of_run`.
local function share_run(job, handoff, name, deadline, keep, may_wait, at)
  local handoff_hash = handoff_key(job, handoff)
  local agent = agent_of(job, handoff)
  local member = member_of(job, handoff)
  if runs_alone(job) then return nil end
  local set = run_key(agent, name)
  local follows, since = unpack(redis.call('HMGET', handoff_hash, 'follows', 'follows_since'))
  local result = follows and result_of_run(job, follows, agent, name)
  if result then
    redis.call('ZREM', set, member)
    return result
  end
  local first, score = unpack(redis.call('ZRANGE', set, '0', '0', 'WITHSCORES'))
  local has_runner = first and first ~= member and score == '0'
  if has_runner and is_running(job, first, agent, name) then
    since = number_or(since, at)
    local wait_until = at + FOLLOWS_FOR_MS
    -- A handoff waits for half of its time at most, so that it can still run itself.
    if deadline > 0 then wait_until = math.min(wait_until, (since + deadline) / 2) end
    if not may_wait or wait_until <= at then
      redis.call('ZREM', set, member)
      return nil
    end
    redis.call('ZADD', set, 'NX', integer(at), member)
    extend_key(set, keep)
    redis.call(
      'HSET', handoff_hash, 'shares', name, 'follows', first, 'follows_since', integer(since),
      'waits', '1', 'deferred', integer(wait_until)
    )
    local doing = 'equal handoff ' .. string.gsub(first, '/', ' ')
    redis.call('HSET', handoff_hash, 'doing', clip(doing))
    redis.call('ZADD', due_of(job, handoff), integer(wait_until), member)
    return 'following'
  end
  if has_runner then redis.call('ZREM', set, first) end
  redis.call('ZADD', set, '0', member)
  extend_key(set, keep)
  redis.call('HSET', handoff_hash, 'shares', name)
  redis.call('HDEL', handoff_hash, 'follows')
  return nil
end

-- Make a waiting handoff due. Returns whether it waits. `ended`: the member whose result it copies,
-- or nil.
local function wake_follower(job, due, member, agent, ended, at)
  local handoff_hash = sharing_handoff(job, member, agent)
  if not handoff_hash or redis.call('HGET', handoff_hash, 'state') ~= 'issued' then return false end
  if ended then redis.call('HSET', handoff_hash, 'follows', ended) end
  redis.call('HDEL', handoff_hash, 'waits', 'deferred')
  redis.call('HSET', handoff_hash, 'lost', '1')
  redis.call('ZADD', due, integer(at), member)
  return true
end

-- Remove a handoff that ends from its set. After a run that may be copied, all others are woken.
-- After another end of the run, the next handoff takes over, and the others go on waiting.
local function leave_run(job, handoff, name, may_copy, at)
  local agent, member = agent_of(job, handoff), member_of(job, handoff)
  local set, due = run_key(agent, name), due_of(job, handoff)
  local score = redis.call('ZSCORE', set, member)
  if not score then return end
  redis.call('ZREM', set, member)
  if may_copy and score == '0' then
    for _, other in ipairs(redis.call('ZRANGE', set, '0', integer(MAX_WOKEN - 1))) do
      wake_follower(job, due, other, agent, member, at)
    end
    redis.call('DEL', set)
    return
  end
  local first_score = redis.call('ZRANGE', set, '0', '0', 'WITHSCORES')[2]
  if first_score == '0' then return end -- another one runs
  for _, other in ipairs(redis.call('ZRANGE', set, '0', integer(MAX_WOKEN - 1))) do
    if wake_follower(job, due, other, agent, nil, at) then return end
    redis.call('ZREM', set, other)
  end
end

-- Count the copy of a result, and the money that it saved. `copy`: micro-dollars ('': unknown) and
-- the model of the run, separated by a space.
local function count_copy(job, agent, copy, at)
  local usd, model = string.match(copy, '^(%d*) (.*)$')
  local tenant, saved = label('tenant', job_of(job).tenant), tonumber(usd) or 0
  agent, model = label('agent', agent), label('model', model ~= '' and model or 'unknown')
  add_to_metric('1', 'shared_handoffs', tenant, agent, model)
  if saved > 0 then add_to_metric(integer(saved), 'shared_saved_usd', tenant, agent, model) end
  add_to_spending(
    math.floor(at / DAY_MS), tenant, agent, model, job_of(job).mode, { copies = 1, spared = saved }
  )
end
