-- In front of the scripts that let a model call go: the pace that a provider allows a lane (one model under one account), shared by all
-- processes. A lane is a hash:
--   known                 somebody has heard from it; before that, one call goes ahead and shows what the limits are
--   until, why, strikes   refused (429, 529): no call before this Unix ms; refusals since the last success
--   going, going_until    who goes ahead of all others, and how long they wait for it at the most
--   cleared               when the last call that went ahead and succeeded was let go, Unix ms: refusals of earlier ones are no news
--   NAME, NAME_level, at  a token bucket each of requests, input and output: limit in a window, what is left, as of when
--   output_mean           output tokens that a call has used of late
-- Where there are limits, it has a line of those who wait: two zsets of job/handoff, by when it came, and until when it counts as alive.
-- All of it is made only where a call has a pace to keep: to make that many functions takes longer than most of them.
local made_lanes
local function lanes()
  if made_lanes then return made_lanes end

  local BUCKETS = { 'requests', 'input', 'output' }
  local SLACK = { requests = 1, input = 1000, output = 1000 } -- providers round what is left
  local KEEP_LANE_MS = 600000
  local KEEP_LANES_MS = 86400000 -- longer than a provider holds anybody off
  local LANES = 'handoff:lanes' -- which there are, and until when
  local AHEAD_MS, PROBE_MS = 3000, 30000 -- the first call of a lane; the first after a refusal
  local LOOK_AGAIN_MS = 200
  local ON_THE_WAY_MS = 1000 -- from here until the provider counts a call: a connection is opened, a busy machine comes to it
  local ALIVE_MS = 10000 -- who waits asks again every 2 s
  local PARKED_ALIVE_MS = 60000 -- who is parked asks again when it has been published and claimed
  local USUAL_OUTPUT = 500 -- before a first reply has shown it

  local function lane_of(name)
    local key = 'handoff:pace:' .. name
    local lane, all = { name = name, key = key, line = key .. ':line', alive = key .. ':alive', is = {} }, redis.pcall('HGETALL', key)
    if all.err then -- the key holds something else than a hash
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

  -- Adds to the buckets (never above their limits) and notes them as of now.
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

  -- How many wait before this one. The dead don't.
  local function before(lane, member, at)
    for _, dead in ipairs(redis.call('ZRANGEBYSCORE', lane.alive, '-inf', at)) do leave_line(lane, dead) end
    return redis.call('ZRANK', lane.line, member) or redis.call('ZCARD', lane.line)
  end

  -- Ms after `from` until there is enough for those who wait before, taken to need as much, and for this one, beside what refills while a call is on
  -- its way. A full bucket does not refill: the server's loses that until the first of a burst arrives, and who goes the moment that there is just
  -- enough, and is on his way for less long than that first one, comes too early.
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

  -- May this call go? `asked`: {lane, window, input, output}.
  -- Returns nil and {is the lane limited, does this call go ahead, Unix ms, input taken, output taken}; or ms to wait and why.
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
      goes_ahead = is_probe or not is_awaited -- who was silent for so long has no limits to tell
    end
    if goes_ahead then redis.call('HSET', lane.key, 'going', member, 'going_until', at + (is_probe and PROBE_MS or AHEAD_MS)) end
    if lane.limited then
      pour(lane, { requests = -1, input = -math.min(is.input or 0, needs.input), output = -math.min(is.output or 0, needs.output) }, at, window)
      leave_line(lane, member)
    end
    keep_lane(lane, at)
    return nil, { lane.limited and 1 or 0, goes_ahead and 1 or 0, at, math.floor(needs.input), math.floor(needs.output) }
  end

  -- A call is over: what it took too much flows back. If it went ahead and nothing was heard of it, the next one does.
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

-- `pace`: nil or {lane, window, requests, input, output: to be given back, mean: output tokens of a whole reply, or nil}.
local function even_out(pace, member, at)
  if pace then lanes().even_out(pace, member, at) end
end
