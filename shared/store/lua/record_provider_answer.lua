-- Record a provider's answer to a call: accepted, with its limits, or refused.
-- KEYS bucket.  ARGV: job/handoff, then a JSON object with
--   bucket, window (ms), asked_at (Unix ms), limits{NAME: [limit, remaining]},
-- and for a refusal also
--   why, retry_after (ms; -1: none given), first (ms of the first backoff), longest (ms of the
--     longest backoff), most (ms that calls wait at most), dice (random, 0 to 1).
-- Returns 1
local limiter, report = rate_limiter(), from_json(ARGV[2])
local call = limiter.call_of(ARGV[1])
local bucket, window, at = limiter.bucket_of(report.bucket), report.window, now_ms()
local fields = bucket.fields
local is_current = not report.why or report.asked_at >= (fields.cleared or 0)
redis.call('HSET', bucket.key, 'known', 1)

if not report.why then
  close_circuit(bucket, call, report.asked_at)
elseif is_current then
  open_circuit(bucket, report, call, at)
end

if is_current then
  for name, pair in pairs(report.limits) do
    local limit, remaining = pair[1], pair[2]
    local level = remaining
    if fields[name] == limit then
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
      if fields[name] and not report.limits[name] then
        local level = string.format('%.3f', limiter.level_at(bucket, name, at, window))
        redis.call('HSET', bucket.key, name .. '_level', level)
      end
    end
    redis.call('HSET', bucket.key, 'at', at)
  end
end
limiter.keep_bucket(bucket, at)
return 1
