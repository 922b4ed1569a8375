-- Part of the scripts that admit a model call: the rate limits of a bucket (one model under one
-- account), which all processes share. A bucket is a hash:
--   known                 a process has had an answer; before that, one call goes first and shows
--     the limits
--   until, why, strikes   refused (429, 529): no call before this Unix ms; refusals since the last
--     success
--   going, going_until    the call that goes first, and how long the others wait for it at most
--   cleared               admission time of the last successful first call, Unix ms: refusals of
--     earlier calls are old
--   NAME, NAME_level, at  for each of the limits requests, input and output: its value in a window,
--     the rest, and the time of the rest
--   output_mean           output tokens of recent calls
-- With limits it has a line of waiting calls: two zsets of calls, by arrival, and by the time until
-- which each counts as alive. A call has the SHA-1 of `job/handoff` as its name: all workers may
-- read buckets, and none may learn the id of a job of others. The functions are defined only for a
-- call with limits, because their definition takes longer than most calls.
local made_rate_limiter
local function rate_limiter()
  if made_rate_limiter then return made_rate_limiter end

  local LIMITS = { 'requests', 'input', 'output' }
  -- All fields of a bucket. Another program may have added others, so no script reads all fields.
  local FIELDS = {
    'known', 'until', 'why', 'strikes', 'going', 'going_until', 'cleared', 'at', 'output_mean',
  }
  for _, name in ipairs(LIMITS) do
    FIELDS[#FIELDS + 1], FIELDS[#FIELDS + 2] = name, name .. '_level'
  end
  local SLACK = { requests = 1, input = 1000, output = 1000 } -- providers round the rest
  local KEEP_BUCKET_MS = 600000
  local KEEP_BUCKETS_MS = 86400000 -- longer than any refusal of a provider
  local BUCKETS = 'handoff:buckets' -- existing buckets, and their expiry
  local ASK_AGAIN_MS = 200
  -- Time until the provider counts a call, with a new connection and on a busy machine.
  local ON_THE_WAY_MS = 1000
  local ALIVE_MS = 10000 -- a waiting call asks again every 2 s
  local DEFERRED_ALIVE_MS = 60000 -- a deferred call asks again after it is published and claimed
  local MAX_DEAD = 1000 -- places of dead calls that one script removes
  local USUAL_OUTPUT = 500 -- until a first reply shows it

  local function bucket_of(name)
    local key = 'handoff:bucket:' .. name
    local bucket = {
      name = name, key = key, line = 'handoff:bucket_line:' .. name,
      alive = 'handoff:bucket_alive:' .. name, fields = {},
    }
    local fields = bucket.fields
    local values = redis.pcall('HMGET', key, unpack(FIELDS))
    if values.err then -- the key is not a hash
      redis.call('DEL', key)
      values = {}
    end
    for i, field in ipairs(FIELDS) do
      local value = values[i] or nil
      if field ~= 'why' and field ~= 'going' then
        value = number_or(value)
      elseif value and not short(value, MAX_LINE_BYTES) then
        redis.call('HDEL', key, field) -- otherwise each call would read it again
        value = nil
      end
      fields[field] = value
    end
    if not fields.going_until then fields.going = nil end
    for _, limit in ipairs(LIMITS) do
      local is_whole = (fields[limit] or 0) > 0 and fields[limit .. '_level'] and fields.at
      if not is_whole then fields[limit] = nil end -- as if the provider had named no such limit
      bucket.limited = bucket.limited or fields[limit]
    end
    return bucket
  end

  local function keep_bucket(bucket, at)
    local keep = KEEP_BUCKET_MS + math.max(0, (bucket.fields['until'] or 0) - at)
    redis.call('PEXPIRE', bucket.key, keep)
    redis.call('ZREMRANGEBYSCORE', BUCKETS, '-inf', at)
    redis.call('ZADD', BUCKETS, at + keep, bucket.name)
    redis.call('PEXPIRE', BUCKETS, KEEP_BUCKETS_MS)
  end

  -- Return the rest of a limit at a time, which refills from the stored rest within a window.
  local function level_at(bucket, name, at, window)
    local limit = bucket.fields[name]
    local refilled = limit * math.max(0, at - bucket.fields.at) / window
    return math.min(limit, bucket.fields[name .. '_level'] + refilled)
  end

  -- Add amounts to the rest of each limit (never above the limit), and store it with the time.
  local function fill(bucket, amounts, at, window)
    if not bucket.limited then return end
    for _, name in ipairs(LIMITS) do
      local limit = bucket.fields[name]
      if limit then
        local level = math.min(limit, level_at(bucket, name, at, window) + (amounts[name] or 0))
        redis.call('HSET', bucket.key, name .. '_level', string.format('%.3f', level))
      end
    end
    redis.call('HSET', bucket.key, 'at', at)
  end

  local function leave_line(bucket, call)
    redis.call('ZREM', bucket.line, call)
    redis.call('ZREM', bucket.alive, call)
  end

  local function join_line(bucket, call, at, alive_until)
    redis.call('ZADD', bucket.line, 'NX', at, call)
    redis.call('ZADD', bucket.alive, alive_until, call)
    for _, key in ipairs({ bucket.line, bucket.alive }) do
      redis.call('PEXPIRE', key, KEEP_BUCKET_MS + alive_until - at)
    end
  end

  -- Return the number of live calls in front of this one.
  local function count_before(bucket, call, at)
    local dead = redis.call('ZRANGEBYSCORE', bucket.alive, '-inf', at, 'LIMIT', 0, MAX_DEAD)
    for _, dead_call in ipairs(dead) do leave_line(bucket, dead_call) end
    return redis.call('ZRANK', bucket.line, call) or redis.call('ZCARD', bucket.line)
  end

  -- Return the ms after `from` until there is enough for the calls in front, with the same need,
  -- and for this one, plus the refill while a call is on its way. An unused limit does not refill:
  -- the server's bucket loses that amount until the first call of a burst arrives. A call at the
  -- exact moment of enough tokens, with a shorter way than that first call, would come too early.
  local function ms_until_enough(bucket, needs, calls_before, from, window)
    local ms = 0
    for _, name in ipairs(LIMITS) do
      local limit = bucket.fields[name]
      if limit then
        local kept = limit * math.min(1, ON_THE_WAY_MS / window)
        local needed = math.min(limit - kept, needs[name]) * (calls_before + 1) + kept
        local short = needed - level_at(bucket, name, from, window)
        if short > 0 then ms = math.max(ms, math.ceil(short * window / limit)) end
      end
    end
    return ms
  end

  -- Return the name of a handoff's call. `member`: job/handoff.
  local function call_of(member)
    return redis.sha1hex(member)
  end

  -- Admit a call. `asked`: {bucket, window, input, output, no_line: a waiting call joins no line}.
  -- Returns nil and {is the bucket limited, does this call go first, Unix ms, input taken, output
  -- taken}; or ms to wait and the reason.
  local function admit(asked, member, at)
    local bucket, window, call = bucket_of(asked.bucket), asked.window, call_of(member)
    local fields = bucket.fields
    local needs = {
      requests = 1, input = asked.input,
      output = math.min(asked.output, fields.output_mean or USUAL_OUTPUT),
    }
    local from = math.max(at, fields['until'] or 0)
    local ms = from - at
    if bucket.limited then
      local calls_before = count_before(bucket, call, at)
      ms = ms + ms_until_enough(bucket, needs, calls_before, from, window)
    end
    if ms > 0 then
      if bucket.limited and not asked.no_line then join_line(bucket, call, at, at + ALIVE_MS) end
      return ms, fields.why or 'rate limit'
    end
    local is_awaited, goes_ahead = try_first_call(bucket, call, at)
    if is_awaited then return ASK_AGAIN_MS, fields.why or 'first call' end
    if bucket.limited then
      local taken = {
        requests = -1, input = -math.min(fields.input or 0, needs.input),
        output = -math.min(fields.output or 0, needs.output),
      }
      fill(bucket, taken, at, window)
      leave_line(bucket, call)
    end
    keep_bucket(bucket, at)
    return nil, {
      bucket.limited and 1 or 0, goes_ahead and 1 or 0, at, math.floor(needs.input),
      math.floor(needs.output),
    }
  end

  -- End a call: the unused share flows back. If a first call ends without an answer, the next call
  -- goes first.
  local function settle_share(share, member, at)
    local bucket = bucket_of(share.bucket)
    if bucket.fields.going == call_of(member) then
      redis.call('HDEL', bucket.key, 'going', 'going_until')
    end
    fill(bucket, share, at, share.window)
    if bucket.limited and share.mean then
      local mean = bucket.fields.output_mean or share.mean
      local new_mean = mean + (share.mean - mean) / 8
      redis.call('HSET', bucket.key, 'output_mean', string.format('%.1f', new_mean))
    end
  end

  made_rate_limiter = {
    LIMITS = LIMITS, SLACK = SLACK, DEFERRED_ALIVE_MS = DEFERRED_ALIVE_MS,
    bucket_of = bucket_of, call_of = call_of, keep_bucket = keep_bucket, level_at = level_at,
    leave_line = leave_line, join_line = join_line,
    admit = admit, settle_share = settle_share,
  }
  return made_rate_limiter
end

-- End a call in its bucket. `share`: nil or {bucket, window, requests, input, output: the share to
-- give back, mean: output tokens of a whole reply, or nil}.
local function settle_share(share, member, at)
  if share then rate_limiter().settle_share(share, member, at) end
end
