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
--   regardless (1: the decision stays valid if only results have come since `expected`),
--   claim (arguments of `claim`, for a handoff issued here),
--   ends (number of arguments of `finish`, for the handoff whose result led to the decision: the
--     events of that end come before those of the decision; the handoff ends even if the decision
--     is refused),
--   after (a job that must exist: otherwise nothing is written, and the returned version is -1),
--   parent {job, handoff} (the handoff of another job that this job does from now on),
--   decided[{asked, handoff, place}] (answers to questions about calls: version of the question,
--     its handoff, and the place of the answer among the events, from 1),
--   ended (1: this ends the job),
--   verified {job[], day, today[]} (see `parts/verified_usage.lua`),
--   cancels{child: event} (for the journals of children whose handoffs are dropped; '*': for a
--     child that the sender does not know).
-- Then the arguments of `finish`, if any, then the events, then pairs of digest and compressed
-- payload.
-- Returns {1, version, Unix ms, result of `claim`, result of `finish`, if any}; {0, current
-- version, 0, false, result of `finish`}; or {0, -2, n, tenant} if the commit would open a job of a
-- tenant that has n open jobs, the most that it may have.
local job, due, jobs = KEYS[1], KEYS[2], KEYS[3]
local c = cjson.decode(ARGV[1])
local issued, drops, first_event = c.issue or {}, c.drop or {}, 2 + (c.ends or 0)
if c.after and redis.call('EXISTS', key_of(c.after)) == 0 then return { 0, -1, 0, false } end
local children, status, evaluations, assigned, messages, parent, tenant = unpack(redis.call(
  'HMGET', job, 'children', 'status', 'evaluations', 'assigned', 'messages', 'parent', 'tenant'
))
local last, tip, tally = unpack(redis.call('HMGET', progress_of(job), 'version', 'tip', 'tally'))
local version = tonumber(status and last or 0)
c.keep_ms = keep_from_now(c.keep_ms, c.deadline or 0)
if c.created then c.fields.status = c.fields.status or 'queued' end

-- Return whether all events after `expected` are results, in the history that the decision has
-- read.
local function only_results_since()
  local MOST_RESULTS = 5000
  local entries = redis.call(
    'XRANGE', job .. ':log', c.expected .. '-0', '+', 'COUNT', MOST_RESULTS
  )
  if #entries ~= version - c.expected + 1
    or (c.tip >= 0 and tonumber(entries[1][2][4]) ~= c.tip)
  then
    return false
  end
  for i = 2, #entries do
    if cjson.decode(entries[i][2][2]).type ~= 'handoff_finished' then return false end
  end
  return true
end

local is_overtaken = version ~= c.expected or (c.tip >= 0 and c.tip ~= tonumber(tip or 0))
local is_refused = is_overtaken
  and not (c.regardless == 1 and version > c.expected and only_results_since())
local ended = false
if c.ends then
  local arguments = {}
  for place = 1, math.min(c.ends, #ARGV - 1) do arguments[place] = ARGV[1 + place] end
  ended = finish(job, arguments)
  if ended[1] ~= 'ok' then return { 0, version, 0, false, ended } end
  version = ended[3]
  tally = redis.call('HGET', progress_of(job), 'tally')
  evaluations = redis.call('HGET', job, 'evaluations')
end
if is_refused then return { 0, version, 0, false, ended } end
-- A child job is part of the job above it.
local is_counted = c.fields.status and not c.parent and not parent
local owner = c.fields.tenant or tenant or 'default'
if is_counted and is_open(c.fields.status) and not is_open(status) then
  local most = figure(redis.call('HGET', 'handoff:caps', 'tenant_open_jobs'), 0)
  if most > 0 and open_jobs_of(owner, most) >= most then return { 0, -2, most, owner } end
end
local at = now_ms()
local id, now = id_of(job), whole(at)

-- Claim the parent's handoff for a child job that begins. The claim has no lease and holds until
-- the child has ended. Returns false if the parent no longer needs the handoff.
local function claim_of_parent()
  local outer = key_of(c.parent.job)
  local h = handoff_key(outer, c.parent.handoff)
  local its = redis.call('HMGET', h, 'state', 'child')
  local is_issued = its[1] == 'issued' and its[2] == id
  if not is_issued or redis.call('EXISTS', outer) == 0 or is_cancelled(outer) then return false end
  redis.call(
    'HSET', h, 'state', 'running', 'fence', id, 'worker', id, 'claims', 1, 'started_at', at,
    'claimed_at', at
  )
  local earlier = string.match(redis.call('HGET', job, 'parent') or '', '/(.+)$')
  begin_amounts_for(h, job, earlier and handoff_key(outer, earlier))
  redis.call('HSET', job, 'parent', c.parent.job .. '/' .. c.parent.handoff)
  redis.call('HSETNX', job, 'submitted_at', at)
  return true
end

-- Add the issued handoffs to the tally of the job, and their queues to its field `assigned`, which
-- the filter of the list of jobs reads.
local function count_issued()
  tally = tally_on(tally, { issued = #issued })
  c.fields.tally = tally
  for _, handoff in ipairs(issued) do
    local queue = handoff.queue
    if queue and not has_word(assigned, queue) then
      assigned = (assigned and assigned .. ' ' or '') .. queue
      c.fields.assigned = assigned
    end
  end
end

-- Issue the handoffs of the decision, and note those that their sender will publish.
local to_claim -- fields of the issued handoff that this commit claims
local function issue()
  -- Store the roles of the issued handoffs.
  local function store_roles(kept_ms)
    for first = 1, #issued, MOST_AT_ONCE do
      local roles = {}
      for place = first, math.min(first + MOST_AT_ONCE - 1, #issued) do
        local handoff = issued[place]
        roles[#roles + 1], roles[#roles + 2] = handoff.id, handoff.fields.role
        roles_read[job .. handoff.id] = handoff.fields.role
      end
      redis.call('HSET', job .. ':roles', unpack(roles))
    end
    redis.call('PEXPIRE', job .. ':roles', whole(kept_ms))
  end

  -- Store an issued handoff, and its child job, if it has one.
  local function store_handoff(handoff, kept_ms)
    local h, child = handoff_key(job, handoff.id), handoff.fields.child
    handoff.fields.state, handoff.fields.issued_at = 'issued', now
    if messages then handoff.fields.messages = messages end -- its task names these messages
    put(h, handoff.fields)
    redis.call('PEXPIRE', h, whole(kept_ms))
    times_left[h] = kept_ms
    if child and not string.find(children or '', child, 1, true) then
      children = (children or '') .. ' ' .. child
      redis.call('HSET', job, 'children', children)
    end
  end

  -- Publishing a message takes about a millisecond. So the last of thousands of messages does not
  -- count as late.
  local PUBLISHING_MS = 2
  local kept_ms, leaving = math.max(c.keep_ms, left_of(job)), {}
  store_roles(kept_ms)
  for place, handoff in ipairs(issued) do
    local queue = handoff.queue
    store_handoff(handoff, kept_ms)
    if c.claim and handoff.id == c.claim[1] and not queue then to_claim = handoff.fields end
    if queue then
      local entries = leaving[queue] or {}
      entries[#entries + 1] = whole(at + PUBLISHING_MS * (place - 1))
      entries[#entries + 1] = id .. '/' .. handoff.id
      leaving[queue] = entries
    end
  end
  for queue, entries in pairs(leaving) do
    send_off(queue, entries)
    redis.call('HSETNX', 'handoff:queues', queue, '0')
  end
end

-- Drop the handoffs that the decision names, and count them.
local function drop_all()
  local BATCHES_KEPT_MS = 24 * 3600 * 1000 -- a batch ends after 24 hours

  -- Cancel an open child job. A worker may write the id of the child, so a job with another parent
  -- stays. The due time wakes its supervisor, which drops the child's handoffs and so cancels the
  -- children of the child.
  local function cancel(child)
    local key = key_of(child)
    local f = redis.call('HMGET', key, 'status', 'cancelled', 'parent')
    local is_child = f[3] and string.sub(f[3], 1, #id + 1) == id .. '/'
    if is_child and (f[1] == 'queued' or f[1] == 'running') and not f[2] then
      append(
        key, tonumber(redis.call('HGET', progress_of(key), 'version') or 0),
        { c.cancels[child] or c.cancels['*'] }, 1, 1, at, { cancelled = 1 }
      )
      redis.call('ZADD', due, at, child)
    end
  end

  -- Return whether a text may be the id of a batch. A worker may have written any text, and no
  -- supervisor could remove a text that is not UTF-8 from the list.
  local function is_batch_id(text)
    local MOST_BYTES = 200
    return #text <= MOST_BYTES and string.find(text, '^[!-~]+$')
  end

  -- Drop a handoff that no job needs. Returns whether it was still open.
  local function drop(handoff)
    local h = handoff_key(job, handoff)
    local f = redis.call(
      'HMGET', h, 'queue', 'group', 'bucket', 'child', 'state', 'asks', 'shares', 'batch'
    )
    local role, member = role_of(job, handoff), id .. '/' .. handoff
    if not f[5] or f[5] == 'done' or f[5] == 'dropped' then return false end
    redis.call('HSET', h, 'state', 'dropped')
    if c.claim and handoff == c.claim[1] then to_claim = nil end
    local tenant_label = label('tenant', job_of(job).tenant)
    add_to_metric('1', 'handoffs', tenant_label, label('role', role), 'dropped')
    redis.call('DEL', draft_key(job, handoff))
    if f[8] and is_batch_id(f[8]) then -- a supervisor cancels the batch
      redis.call('ZADD', 'handoff:batches', now, f[8])
      redis.call('PEXPIRE', 'handoff:batches', whole(BATCHES_KEPT_MS))
    end
    settle(job, h, nil)
    close_calls(job, f[6])
    if f[7] then leave_run(job, handoff, f[7], false, at) end
    redis.call('DEL', turns_key(job, handoff))
    redis.call('ZREM', due_of(job, handoff), member)
    if f[1] then pcall(forget, f[1], member) end -- a worker may have written another queue's name
    redis.call('ZREM', 'handoff:on_hold:' .. role, member)
    if f[3] then rate_limiter().leave_line(rate_limiter().bucket_of(f[3]), member) end
    -- otherwise the chord would wait for it
    if f[2] then add_to_figure(progress_of(job), 'g:' .. f[2], '-1') end
    if f[4] then cancel(f[4]) end
    return true
  end

  local dropped = {}
  for _, handoff in ipairs(drops) do
    if drop(handoff) then dropped[#dropped + 1] = handoff end
  end
  if #dropped == 0 then return end
  put(progress_of(job), {
    tally = tally_on(tally, { dropped = #dropped }),
    dropped_last = noted(job, 'dropped_last', dropped),
  })
end

-- Add a new job to the list of jobs, and note the wake-up that its sender will publish.
local function announce()
  -- Return the score of a new job in the list: its submission in Unix ms, plus a fraction that
  -- orders the jobs of one ms.
  local function place_in_list()
    local STEP = 1 / 1024 -- a score of 2^41 ms has room for 11 binary digits behind the point
    local newest = redis.call(
      'ZREVRANGEBYSCORE', jobs, '(' .. whole(at + 1), now, 'WITHSCORES', 'LIMIT', '0', '1'
    )
    return newest[2] and string.format('%.17g', newest[2] + STEP) or now
  end

  if c.parent then -- a child job is not in the list of jobs
    send_off('supervisor', { now, id })
  elseif c.created then
    redis.call('ZADD', jobs, place_in_list(), id)
    add_to_metric('1', 'jobs_submitted', label('tenant', job_of(job).tenant))
    -- The client publishes the wake-up of a new job.
    if c.fields.status == 'queued' then send_off('submissions', { now, id }) end
  end
end

-- Count the end of a job. The end of a child job is the end of a handoff, which is counted. If a
-- handoff has ended in the same script, its result is the event before the end.
local function count_end()
  local submitted, result = redis.call('ZSCORE', jobs, id), c.fields.status or ''
  if not submitted then return end
  add_to_metric('1', 'jobs_ended', label('tenant', job_of(job).tenant), result)
  observe(at - math.floor(tonumber(submitted)), 'job_duration_seconds', result)
  observe(ended and 0 or at - tonumber(tip or at), 'job_end_delay_seconds')
end

-- Shorten the time to live of an ended job and its child jobs, if it is much longer than the
-- retention.
local function shorten_all()
  local AFTER_END_MS = 2 * 3600 * 1000 -- webhooks and tasks at the end are retried for so long
  if left_of(job) <= c.keep_ms + AFTER_END_MS or above(job) then return end
  for _, key in ipairs(with_children(job, children)) do
    shorten(key, math.max(c.keep_ms, AFTER_END_MS))
  end
end

if c.parent and not claim_of_parent() then return { 0, 0, 0, false } end
if c.verified then record_verified_usage(job, c.verified, at) end
keep_payloads(job, ARGV, first_event + c.events)
for name, size in pairs(c.groups or {}) do c.fields['g:' .. name] = size end
if #issued > 0 then count_issued() end
c.fields.evaluations = without(c.evaluation, evaluations)
if c.evaluation ~= '' and not is_overtaken then c.fields.seen = whole(version + c.events) end
version = append(job, version, ARGV, first_event, c.events, at, c.fields)
for _, answer in ipairs(c.decided or {}) do
  local batch = { answer.place }
  for place = 1, c.events do batch[1 + place] = ARGV[first_event + place - 1] end
  decide_call(job, answer.handoff, whole(answer.asked), cjson.encode(batch), at)
end
if #issued > 0 then issue() end
if #drops > 0 then drop_all() end
if c.due < 0 then
  redis.call('ZREM', due, id)
elseif is_overtaken then
  -- a result that came in the meantime may have set an earlier time
  redis.call('ZADD', due, 'LT', whole(c.due), id)
else
  redis.call('ZADD', due, whole(c.due), id)
end
note_evaluated(id, status)
if c.score then
  local MOST_SCORES = 100
  keep_newest('handoff:scores', c.score, MOST_SCORES, PAST_KEPT_MS)
end
announce()
if c.ended then count_end() end
stay_whole(job, children, c.keep_ms)
if is_counted then note_openness(owner, job, c.fields.status) end
if c.ended then shorten_all() end
for _, handoff in ipairs(c.keep or {}) do stay(job, handoff_key(job, handoff), c.keep_ms) end
return { 1, version, at, c.claim and claim(job, c.claim, to_claim) or false, ended }
