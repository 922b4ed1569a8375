-- Compare-and-append: the only way in which a decision enters a journal.
-- KEYS job, due, jobs.  ARGV: a JSON object with the fields
--   expected (version of the journal that the decision has read), tip (Unix ms of its last event;
--     -1: not compared), events (number), fields{} (of the job and of its progress),
--     due (Unix ms | -1 none), keep_ms (retention), evaluation (the evaluation that ends here, or
--     ''),
-- and, where needed, the fields
--   deadline (Unix ms: the retention begins then),
--   issue[{id, queue, fields{}}], groups{name: size}, drop[id], keep[id],
--   created (1: this creates the job),
--   score (accuracy of a quote, JSON),
--   regardless ('results': the decision stays valid if only results have come since `expected`;
--     'workers': if only workers have appended since, whatever they have appended),
--   claim (arguments of `claim`, for a handoff issued here),
--   ends (number of arguments of `finish`, for the handoff whose result led to the decision: the
--     events of that end come before those of the decision; the handoff ends even if the decision
--     is refused),
--   after (a job that must exist: otherwise nothing is written, and the returned version is -1),
--   parent {job, handoff} (the handoff of another job that this job does from now on),
--   decided[{asked, handoff, event}] (answers to questions about calls: version of the question,
--     its handoff, and the event of the answer with a separate signature),
--   ended (1: this ends the job),
--   pages (number of fetched pages that the job gets from another job),
--   verified {job[], day, today[]} (see `parts/verified_usage.lua`),
--   cancels{child: event} (for the journals of children whose handoffs are dropped; '*': for a
--     child that the sender does not know).
-- Then the arguments of `finish`, if any, then the events, then the entries of the pages, then
-- pairs of digest and compressed payload.
-- Returns {1, version, Unix ms, result of `claim`, result of `finish`, if any}; {0, current
-- version, 0, false, result of `finish`}; or {0, -2, n, tenant} if the commit would open a job of a
-- tenant that has n open jobs, the most that it may have.
local job, due, jobs = KEYS[1], KEYS[2], KEYS[3]
local decision = cjson.decode(ARGV[1])
local issued, drops = decision.issue or {}, decision.drop or {}
local first_event = 2 + (decision.ends or 0)
if decision.after and redis.call('EXISTS', key_of(decision.after)) == 0 then
  return { 0, -1, 0, false }
end
local stored = redis.call(
  'HMGET', job, 'children', 'status', 'evaluations', 'assigned', 'messages', 'parent', 'tenant',
  'written', 'begun'
)
local children, status, evaluations, assigned, messages, parent, tenant, written, begun = unpack(
  stored, 1, 9
)
local version = status and version_of(job) or 0
local tip = status and newest_time(job) or 0
decision.keep_ms = keep_from_now(decision.keep_ms, decision.deadline or 0)
if decision.created then decision.fields.status = decision.fields.status or 'queued' end

-- Return whether all events after `expected` are results, in the history that the decision has
-- read.
local function only_results_since()
  local MAX_RESULTS = 5000
  if decision.expected == 0 or version - decision.expected >= MAX_RESULTS then return false end
  for entry, place in each_entry(log_of(job), decision.expected - 1, version - 1) do
    if place == decision.expected - 1 then -- the last event that the decision has read
      if decision.tip >= 0 and entry_time(entry) ~= decision.tip then return false end
    else
      if not string.find(entry_event(entry), '^{"type":"handoff_finished",') then return false end
    end
  end
  return true
end

-- Return whether only workers have appended since `expected`, in the history that the decision has
-- read. A worker that was taken over may append without end, and no decision would be the first
-- writer.
local function only_workers_since()
  if not written or tonumber(written) > decision.expected then return false end
  local read = redis.call('LINDEX', log_of(job), integer(decision.expected - 1))
  return decision.tip < 0 or entry_time(read) == decision.tip
end

local has_other_tip = decision.tip >= 0 and decision.tip ~= tip
local is_overtaken = version ~= decision.expected or has_other_tip
local is_still_valid = not is_overtaken
if is_overtaken and version > decision.expected then
  if decision.regardless == 'results' then
    is_still_valid = only_results_since()
  elseif decision.regardless == 'workers' then
    is_still_valid = only_workers_since()
  end
end
local ended = false
if decision.ends then
  local arguments = {}
  for place = 1, math.min(decision.ends, #ARGV - 1) do arguments[place] = ARGV[1 + place] end
  ended = finish(job, arguments)
  if ended[1] ~= 'ok' then return { 0, version, 0, false, ended } end
  version = ended[3]
  evaluations = redis.call('HGET', job, 'evaluations')
end
if not is_still_valid then return { 0, version, 0, false, ended } end
-- A child job is part of the job above it.
local is_counted = decision.fields.status and not decision.parent and not parent
local owner = decision.fields.tenant or tenant or 'default'
if is_counted and is_open(decision.fields.status) and not is_open(status) then
  local most = number_or(redis.call('HGET', 'handoff:caps', 'tenant_open_jobs'), 0)
  if most > 0 and open_jobs_of(owner, most) >= most then return { 0, -2, most, owner } end
end
local at = now_ms()
local id, now = id_of(job), integer(at)

-- Claim the parent's handoff for a child job that begins. The claim has no lease and holds until
-- the child has ended. Returns false if the parent no longer needs the handoff.
local function claim_of_parent()
  local outer = key_of(decision.parent.job)
  local handoff_hash = handoff_key(outer, decision.parent.handoff)
  local state, child = unpack(redis.call('HMGET', handoff_hash, 'state', 'child'))
  local is_issued = state == 'issued' and child == id
  if not is_issued or redis.call('EXISTS', outer) == 0 or is_cancelled(outer) then return false end
  redis.call(
    'HSET', handoff_hash, 'state', 'running', 'fence', id, 'worker', id, 'claims', 1,
    'started_at', at, 'claimed_at', at
  )
  local earlier = string.match(redis.call('HGET', job, 'parent') or '', '/(.+)$')
  begin_amounts_for(handoff_hash, job, earlier and handoff_key(outer, earlier))
  redis.call('HSET', job, 'parent', decision.parent.job .. '/' .. decision.parent.handoff)
  redis.call('HSETNX', job, 'submitted_at', at)
  return true
end

-- Add the issued handoffs to the tally of the job, and their queues to its field `assigned`, which
-- the filter of the list of jobs reads.
local function count_issued()
  decision.fields.tally = more_tally(job, { issued = #issued })
  for _, handoff in ipairs(issued) do
    local queue = handoff.queue
    if queue and not has_word(assigned, queue) then
      assigned = (assigned and assigned .. ' ' or '') .. queue
      decision.fields.assigned = assigned
    end
  end
end

-- Issue the handoffs of the decision, and note those that their sender will publish.
local to_claim -- fields of the issued handoff that this commit claims
local function issue()
  -- Store the agents of the issued handoffs.
  local function store_agents(kept_ms)
    for first = 1, #issued, MAX_AT_ONCE do
      local agents = {}
      for place = first, math.min(first + MAX_AT_ONCE - 1, #issued) do
        local handoff = issued[place]
        agents[#agents + 1], agents[#agents + 2] = handoff.id, handoff.fields.agent
        agents_read[job .. handoff.id] = handoff.fields.agent
      end
      redis.call('HSET', job .. ':agents', unpack(agents))
    end
    redis.call('PEXPIRE', job .. ':agents', integer(kept_ms))
  end

  -- Store an issued handoff, and its child job, if it has one.
  local function store_handoff(handoff, kept_ms)
    local handoff_hash, child = handoff_key(job, handoff.id), handoff.fields.child
    handoff.fields.state, handoff.fields.issued_at = 'issued', now
    if messages then handoff.fields.messages = messages end -- its task names these messages
    set_fields(handoff_hash, handoff.fields)
    redis.call('PEXPIRE', handoff_hash, integer(kept_ms))
    times_left[handoff_hash] = kept_ms
    if child and not string.find(children or '', child, 1, true) then
      children = (children or '') .. ' ' .. child
      redis.call('HSET', job, 'children', children)
    end
  end

  -- Publishing a message takes about a millisecond. So the last of thousands of messages does not
  -- count as late.
  local PUBLISHING_MS = 2
  local kept_ms, leaving = math.max(decision.keep_ms, left_of(job)), {}
  store_agents(kept_ms)
  for place, handoff in ipairs(issued) do
    local queue = handoff.queue
    store_handoff(handoff, kept_ms)
    local is_claimed = decision.claim and handoff.id == decision.claim[1]
    if is_claimed and not queue then to_claim = handoff.fields end
    if queue then
      local entries = leaving[queue] or {}
      entries[#entries + 1] = integer(at + PUBLISHING_MS * (place - 1))
      entries[#entries + 1] = member_of(job, handoff.id)
      leaving[queue] = entries
    end
  end
  for queue, entries in pairs(leaving) do
    record_sending(queue, entries)
    redis.call('HSETNX', 'handoff:queues', queue, '0')
  end
end

-- Drop the handoffs that the decision names, and count them.
local function drop_all()
  -- Cancel an open child job. A worker may write the id of the child, so a job with another parent
  -- stays. The due time wakes its supervisor, which drops the child's handoffs and so cancels the
  -- children of the child.
  local function cancel(child)
    local key = key_of(child)
    local child_status, cancelled, its_parent = unpack(
      redis.call('HMGET', key, 'status', 'cancelled', 'parent')
    )
    local is_child = its_parent and string.sub(its_parent, 1, #id + 1) == id .. '/'
    if is_child and is_open(child_status) and not cancelled then
      local events = { decision.cancels[child] or decision.cancels['*'] }
      append_trusted(key, events, 1, #events, at, { cancelled = 1 })
      redis.call('ZADD', due, at, child)
    end
  end

  -- Drop a handoff that no job needs. Returns whether it was still open.
  local function drop(handoff)
    local handoff_hash = handoff_key(job, handoff)
    local queue, group, bucket, child, state, asks, run = unpack(redis.call(
      'HMGET', handoff_hash, 'queue', 'group', 'bucket', 'child', 'state', 'asks', 'shares'
    ))
    local agent, member = agent_of(job, handoff), member_of(job, handoff)
    if not state or state == 'done' or state == 'dropped' then return false end
    redis.call('HSET', handoff_hash, 'state', 'dropped')
    redis.call('HDEL', handoff_hash, 'doing')
    if decision.claim and handoff == decision.claim[1] then to_claim = nil end
    local tenant_label = label('tenant', job_of(job).tenant)
    add_to_metric('1', 'handoffs', tenant_label, label('agent', agent), 'dropped')
    redis.call('DEL', draft_key(job, handoff))
    settle_unanswered(job, handoff_hash, handoff)
    close_calls(job, asks)
    if run then leave_run(job, handoff, run, false, at) end
    redis.call('DEL', turns_key(job, handoff))
    redis.call('ZREM', due_of(job, handoff), member)
    if queue then pcall(leave_queue, queue, member) end -- a worker may have written any name
    redis.pcall('ZREM', 'handoff:paused_handoffs:' .. agent, member)
    if bucket then
      local limiter = rate_limiter()
      limiter.leave_line(limiter.bucket_of(bucket), limiter.call_of(member))
    end
    -- otherwise the chord would wait for it
    if group then add_to_figure(progress_of(job), 'g:' .. group, '-1') end
    if child then cancel(child) end
    return true
  end

  local dropped = {}
  for _, handoff in ipairs(drops) do
    if drop(handoff) then dropped[#dropped + 1] = handoff end
  end
  if #dropped == 0 then return end
  set_fields(progress_of(job), {
    tally = more_tally(job, { dropped = #dropped }),
    dropped_last = newest_ids(job, 'dropped_last', dropped),
  })
end

-- Add a new job to the list of jobs, and note the wake-up that its sender will publish.
local function announce()
  -- Return the score of a new job in the list: its submission in Unix ms, plus a fraction that
  -- orders the jobs of one ms.
  local function place_in_list()
    local STEP = 1 / 1024 -- a score of 2^41 ms has room for 11 binary digits after the point
    local newest = redis.call(
      'ZREVRANGEBYSCORE', jobs, '(' .. integer(at + 1), now, 'WITHSCORES', 'LIMIT', '0', '1'
    )
    return newest[2] and string.format('%.17g', newest[2] + STEP) or now
  end

  if decision.parent then -- a child job is not in the list of jobs
    record_sending('supervisor', { now, id })
  elseif decision.created then
    redis.call('ZADD', jobs, place_in_list(), id)
    add_to_metric('1', 'jobs_submitted', label('tenant', job_of(job).tenant))
    -- The client publishes the wake-up of a new job.
    if decision.fields.status == 'queued' then record_sending('submissions', { now, id }) end
  end
end

-- Count the end of a job. The end of a child job is the end of a handoff, which is counted. If a
-- handoff has ended in the same script, its result is the event before the end.
local function count_end()
  local submitted, result = redis.call('ZSCORE', jobs, id), decision.fields.status or ''
  if not submitted then return end
  add_to_metric('1', 'jobs_ended', label('tenant', job_of(job).tenant), result)
  observe(at - math.floor(tonumber(submitted)), 'job_duration_seconds', result)
  observe(ended and 0 or at - (tip > 0 and tip or at), 'job_end_delay_seconds')
end

-- Shorten the time to live of an ended job and its child jobs, if it is much longer than the
-- retention.
local function shorten_all()
  local AFTER_END_MS = 2 * 3600 * 1000 -- webhooks and tasks at the end are retried for so long
  if left_of(job) <= decision.keep_ms + AFTER_END_MS or parent_of(job) then return end
  for _, key in ipairs(with_children(job, children)) do
    shorten_job(key, math.max(decision.keep_ms, AFTER_END_MS))
  end
end

if decision.parent and not claim_of_parent() then return { 0, 0, 0, false } end
if decision.verified then record_verified_usage(job, decision.verified, at) end
local first_page = first_event + decision.events
local first_payload = first_page + (decision.pages or 0)
keep_payloads(job, ARGV, first_payload)
for name, size in pairs(decision.groups or {}) do decision.fields['g:' .. name] = size end
if #issued > 0 then count_issued() end
decision.fields.evaluations = evaluations_without(decision.evaluation, evaluations)
if decision.evaluation ~= '' and not is_overtaken then
  decision.fields.seen = integer(version + decision.events)
end
if not status then
  redis.call('DEL', log_of(job), job .. ':refused') -- a worker may have written the journal before
  -- These keys exist now, so they expire with the job. Workers may not set their time to live.
  redis.call('HSET', progress_of(job), 'turns', '0')
  redis.call('RPUSH', job .. ':fetched', '')
  add_tenant_label(owner)
end
for place = first_page, first_payload - 1 do
  redis.call('RPUSH', job .. ':fetched', ARGV[place])
end
-- A supervisor that refuses the first decision must not decide again: see `JournalGuard`.
if status and not begun and decision.events > 0 then
  decision.fields.begun = integer(version + 1)
end
version = append_trusted(job, ARGV, first_event, decision.events, at, decision.fields)
-- A journal that was lost begins again with this decision, and expires with the job.
if status and version == decision.events and left_of(job) > 0 then
  redis.call('PEXPIRE', log_of(job), integer(left_of(job)))
  redis.call('PEXPIRE', job .. ':newest', integer(left_of(job)))
end
for _, answer in ipairs(decision.decided or {}) do
  decide_call(job, answer.handoff, integer(answer.asked), answer.event, at)
end
if #issued > 0 then issue() end
if #drops > 0 then drop_all() end
if decision.due < 0 then
  redis.call('ZREM', due, id)
elseif is_overtaken then
  -- a result that came in the meantime may have set an earlier time
  redis.call('ZADD', due, 'LT', integer(decision.due), id)
else
  redis.call('ZADD', due, integer(decision.due), id)
end
if status then record_evaluated(id, status) end
if decision.score then
  local MAX_SCORES = 100
  keep_newest('handoff:scores', decision.score, MAX_SCORES, PAST_KEPT_MS)
end
announce()
if decision.ended then count_end() end
extend_job_tree(job, children, decision.keep_ms)
if is_counted then record_openness(owner, job, decision.fields.status) end
if decision.ended then shorten_all() end
for _, handoff in ipairs(decision.keep or {}) do
  extend_job(job, handoff_key(job, handoff), decision.keep_ms)
end
return { 1, version, at, decision.claim and claim(job, decision.claim, to_claim) or false, ended }
