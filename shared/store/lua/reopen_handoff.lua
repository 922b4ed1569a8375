-- Open a handoff again that a refused event has ended, so that an honest worker ends it. The
-- sweeper publishes the handoff again.
-- KEYS job.  ARGV: handoff, version of the refused event.
-- Returns 1 | 0 (another event ended the handoff, or it runs)
local job, handoff = KEYS[1], ARGV[1]
local due = due_of(job, handoff)
local handoff_hash, member = handoff_key(job, handoff), member_of(job, handoff)
local state, end_version, group, counts_json, status = unpack(
  redis.call('HMGET', handoff_hash, 'state', 'end_version', 'group', 'counts', 'status')
)
local is_ended_by_it = state == 'done' and end_version == ARGV[2]
if not is_ended_by_it or redis.call('EXISTS', job) == 0 then return 0 end
if redis.call('HEXISTS', handoff_hash, 'r_batch') == 1 then
  settle(job, handoff_hash, nil) -- its turns are gone
end
redis.call('HSET', handoff_hash, 'state', 'issued', 'lease', '0', 'lost', '1', 'claims', '0')
redis.call('HDEL', handoff_hash, 'fence', 'result', 'status', 'finished_at', 'end_version')
if group then add_to_figure(progress_of(job), 'g:' .. group, '1') end
if status ~= 'failed' and status ~= 'needs_input' then
  -- a worker may have written another text
  local is_json, counts = pcall(cjson.decode, short(counts_json))
  if not is_json or type(counts) ~= 'table' then counts = {} end
  for fan_in in pairs(counts) do add_to_figure(progress_of(job), 'in:' .. fan_in, '-1') end
end
redis.call('ZADD', due, integer(now_ms()), member)
return 1
