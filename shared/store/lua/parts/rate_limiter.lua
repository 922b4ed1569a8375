-- Part of the scripts that admit a model call: the rate limits of a bucket (one model under one
-- account), which all processes share. A bucket is a hash:
--   known                 a process has had an answer; before that, one call goes first and shows
--     the limits
--   until, why, strikes   refused (429, 529): no call before this Unix ms; refusals since the last
--     success
--   going, going_until    the call that goes first, and how long the others wait for it at most
--   cleared               admission time of the last successful first call, Unix ms: refusals of
--     earlier calls are old
--   NAME, NAME_level, at  token buckets for requests, input and output: limit in a window, the
--     rest, and its time
--   output_mean           output tokens of recent calls
-- With limits it has a line of waiting calls: two zsets of job/handoff, by arrival, and by the time
-- until which each counts as alive. The functions are defined only for a call with limits, because
-- their definition takes longer than most calls.
local made_lanes
local function lanes()
  if made_lanes then return made_lanes end

  local BUCKETS = { 'requests', 'input', 'output' }
  local SLACK = { requests = 1, input = 1000, output = 1000 } -- providers round the rest
  local KEEP_LANE_MS = 600000
  local KEEP_LANES_MS = 86400000 -- longer than any refusal of a provider
  local LANES = 'handoff:lanes' -- existing buckets, and their expiry
  local AHEAD_MS, PROBE_MS = 3000, 30000 -- the first call of a bucket; the first after a refusal
  local LOOK_AGAIN_MS = 200
  local ON_THE_WAY_MS = 1000 -- time until the provider counts a call: a new connection, a busy machine
  local ALIVE_MS = 10000 -- a waiting call asks again every 2 s
  local PARKED_ALIVE_MS = 60000 -- a deferred call asks again after it is published and claimed
  local USUAL_OUTPUT = 500 -- until a first reply shows it

  local function lane_of(name)
    local key = 'handoff:pace:' .. name
    local lane, all = { name = name, key = key, line = key .. ':line', alive = key .. ':alive', is = {} }, redis.pcall('HGETALL', key)
    if all.err then -- the key is not a hash
      redis.call('DEL', key)
      all = {}
    end
    for i = 1, #all, 2 do
      local name, value = all[i], all[i + 1]
      if name == 'why' or name == 'going' then lane.is[name] = value else lane.is[name] = figure(value) end
    end
    if lane.is.going and not lane.is.going_until then lane.is.going = nil end
    for _, bucket in ipairs(BUCKETS) do
      local is_whole = (lane.is[bucket] or 0) > 0 and lane.is[bucket .. '_level'] and lane.is.at
      if not is_whole then lane.is[bucket] = nil end -- as if the provider had named no such limit
      lane.limited = lane.limited or lane.is[bucket]
    end
    return lane
  end

  local function keep_lane(lane, at)
    local keep = KEEP_LANE_MS + math.max(0, (lane.is['until'] or 0) - at)
    redis.call('PEXPIRE', lane.key, keep)
    redis.call('ZREMRANGEBYSCORE', LANES, '-inf', at)
    redis.call('ZADD', LANES, at + keep, lane.name)
    redis.call('PEXPIRE', LANES, KEEP_LANES_MS)
  end

  local function level_at(lane, name, at, window)
    local limit = lane.is[name]
    return math.min(limit, lane.is[name .. '_level'] + limit * math.max(0, at - lane.is.at) / window)
  end

  -- Add to the buckets (never above their limits), and store them with the current time.
  local function pour(lane, amounts, at, window)
    if not lane.limited then return end
    for _, name in ipairs(BUCKETS) do
      local limit = lane.is[name]
      if limit then
        local level = math.min(limit, level_at(lane, name, at, window) + (amounts[name] or 0))
        redis.call('HSET', lane.key, name .. '_level', string.format('%.3f', level))
      end
    end
    redis.call('HSET', lane.key, 'at', at)
  end

  local function leave_line(lane, member)
    redis.call('ZREM', lane.line, member)
    redis.call('ZREM', lane.alive, member)
  end

  local function stand_in_line(lane, member, at, alive_until)
    redis.call('ZADD', lane.line, 'NX', at, member)
    redis.call('ZADD', lane.alive, alive_until, member)
    for _, key in ipairs({ lane.line, lane.alive }) do redis.call('PEXPIRE', key, KEEP_LANE_MS + alive_until - at) end
  end

  -- Number of live calls in front of this one.
  local function before(lane, member, at)
    for _, dead in ipairs(redis.call('ZRANGEBYSCORE', lane.alive, '-inf', at)) do leave_line(lane, dead) end
    return redis.call('ZRANK', lane.line, member) or redis.call('ZCARD', lane.line)
  end

  -- Ms after `from` until there is enough for the calls in front, with the same need, and for this
  -- one, plus the refill while a call is on its way. A full bucket does not refill: the server's
  -- bucket loses that amount until the first call of a burst arrives. A call at the exact moment of
  -- enough tokens, with a shorter way than that first call, would come too early.
  local function time_for(lane, needs, many, from, window)
    local ms = 0
    for _, name in ipairs(BUCKETS) do
      local limit = lane.is[name]
      if limit then
        local kept = limit * math.min(1, ON_THE_WAY_MS / window)
        local short = math.min(limit - kept, needs[name]) * (many + 1) + kept - level_at(lane, name, from, window)
        if short > 0 then ms = math.max(ms, math.ceil(short * window / limit)) end
      end
    end
    return ms
  end

  -- Admit a call. `asked`: {lane, window, input, output}.
  -- Returns nil and {is the bucket limited, does this call go first, Unix ms, input taken, output
  -- taken}; or ms to wait and the reason.
  local function admit(asked, member, at)
    local lane, window = lane_of(asked.lane), asked.window
    local is, needs = lane.is, { requests = 1, input = asked.input, output = math.min(asked.output, lane.is.output_mean or USUAL_OUTPUT) }
    local from = math.max(at, is['until'] or 0)
    local ms = from - at
    if lane.limited then ms = ms + time_for(lane, needs, before(lane, member, at), from, window) end
    if ms > 0 then
      if lane.limited then stand_in_line(lane, member, at, at + ALIVE_MS) end
      return ms, is.why or 'rate limit'
    end
    local is_probe, goes_ahead = (is.strikes or 0) > 0, false
    if is_probe or not is.known then
      local is_awaited = is.going and is.going ~= member
      if is_awaited and is.going_until > at then return LOOK_AGAIN_MS, is.why or 'first call' end
      -- a first call that was silent for so long has no limits to report
      goes_ahead = is_probe or not is_awaited
    end
    if goes_ahead then redis.call('HSET', lane.key, 'going', member, 'going_until', at + (is_probe and PROBE_MS or AHEAD_MS)) end
    if lane.limited then
      pour(lane, { requests = -1, input = -math.min(is.input or 0, needs.input), output = -math.min(is.output or 0, needs.output) }, at, window)
      leave_line(lane, member)
    end
    keep_lane(lane, at)
    return nil, { lane.limited and 1 or 0, goes_ahead and 1 or 0, at, math.floor(needs.input), math.floor(needs.output) }
  end

  -- End a call: the unused share flows back. If a first call ends without an answer, the next call
  -- goes first.
  local function even_out(pace, member, at)
    local lane = lane_of(pace.lane)
    if lane.is.going == member then redis.call('HDEL', lane.key, 'going', 'going_until') end
    pour(lane, pace, at, pace.window)
    if lane.limited and pace.mean then
      local mean = lane.is.output_mean or pace.mean
      redis.call('HSET', lane.key, 'output_mean', string.format('%.1f', mean + (pace.mean - mean) / 8))
    end
  end

  made_lanes = {
    BUCKETS = BUCKETS, SLACK = SLACK, PARKED_ALIVE_MS = PARKED_ALIVE_MS,
    lane_of = lane_of, keep_lane = keep_lane, level_at = level_at, leave_line = leave_line, stand_in_line = stand_in_line,
    admit = admit, even_out = even_out,
  }
  return made_lanes
end

-- `pace`: nil or {lane, window, requests, input, output: the share to give back, mean: output
-- tokens of a whole reply, or nil}.
local function even_out(pace, member, at)
  if pace then lanes().even_out(pace, member, at) end
end
