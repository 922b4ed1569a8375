-- Record a provider's answer to a call: accepted, with its limits, or refused.
-- KEYS bucket.  ARGV: job/handoff, then a JSON object with
--   bucket, window (ms), asked_at (Unix ms), limits{NAME: [limit, remaining]},
-- and for a refusal also
--   why, retry_after (ms; -1: none given), first (ms of the first backoff), longest (ms of the
--     longest backoff), most (ms that calls wait at most), dice (random, 0 to 1).
-- Returns 1
local member, report = ARGV[1], cjson.decode(ARGV[2])
local limiter = rate_limiter()
local bucket, window, at = limiter.bucket_of(report.bucket), report.window, now_ms()
local is = bucket.is
local is_current = not report.why or report.asked_at >= (is.cleared or 0)
redis.call('HSET', bucket.key, 'known', 1)

if report.why then
  if is_current then
    local strikes, is_probe = is.strikes or 0, is.going == member
    -- refusals of calls that were made at the same time tell nothing new
    if is_probe or strikes == 0 then strikes = strikes + 1 end
    local backoff = math.min(report.first * 2 ^ (strikes - 1), report.longest)
    local hold = backoff * (0.5 + report.dice / 2)
    if report.retry_after >= 0 then
      hold = math.min(report.retry_after + backoff * report.dice / 4, report.most)
    end
    is['until'] = math.max(is['until'] or 0, at + math.ceil(hold))
    redis.call('HSET', bucket.key, 'until', is['until'], 'why', report.why, 'strikes', strikes)
    if is_probe then redis.call('HDEL', bucket.key, 'going', 'going_until') end
  end
else
  if is.going == member then
    redis.call('HDEL', bucket.key, 'going', 'going_until', 'until', 'why', 'strikes')
    redis.call('HSET', bucket.key, 'cleared', report.asked_at)
    is['until'] = nil
  end
end

if is_current then
  for name, pair in pairs(report.limits) do
    local limit, remaining = pair[1], pair[2]
    local level = remaining
    if is[name] == limit then
      -- The server's count can only lower ours, because it does not know the calls on their way. A
      -- refill since then is not added: a full bucket does not refill, and while the first burst
      -- was on its way, the server's bucket was full. If our count is higher by more than rounding
      -- explains, the server's count is used: otherwise a call on a rounded-off rest would
      -- sometimes be refused.
      local ours = limiter.level_at(bucket, name, at, window)
      if ours <= remaining + limiter.SLACK[name] then level = ours end
    end
    redis.call('HSET', bucket.key, name, limit, name .. '_level', string.format('%.3f', level))
  end
  if next(report.limits) then -- limits without an answer are updated to the same time
    for _, name in ipairs(limiter.LIMITS) do
      if is[name] and not report.limits[name] then
        redis.call(
          'HSET', bucket.key, name .. '_level',
          string.format('%.3f', limiter.level_at(bucket, name, at, window))
        )
      end
    end
    redis.call('HSET', bucket.key, 'at', at)
  end
end
limiter.keep_bucket(bucket, at)
return 1
