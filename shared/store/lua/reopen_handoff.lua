-- Open a handoff again that a refused event has ended, so that an honest worker ends it. The
-- sweeper publishes the handoff again.
-- KEYS job.  ARGV: handoff, version of the refused event.
-- Returns 1 | 0 (another event ended the handoff, or it runs)
local job, handoff = KEYS[1], ARGV[1]
local due = due_of(job, handoff)
local h, member = handoff_key(job, handoff), id_of(job) .. '/' .. handoff
local f = redis.call('HMGET', h, 'state', 'end_version', 'group', 'counts', 'status')
if redis.call('EXISTS', job) == 0 or f[1] ~= 'done' or f[2] ~= ARGV[2] then return 0 end
redis.call('HSET', h, 'state', 'issued', 'lease', '0', 'lost', '1', 'claims', '0')
redis.call('HDEL', h, 'fence', 'result', 'status', 'finished_at', 'end_version')
if f[3] then add_to_figure(progress_of(job), 'g:' .. f[3], '1') end
if f[5] ~= 'failed' and f[5] ~= 'needs_input' then
  local is_json, counts = pcall(cjson.decode, f[4]) -- a worker may have written another text
  if not is_json or type(counts) ~= 'table' then counts = {} end
  for fan_in in pairs(counts) do add_to_figure(progress_of(job), 'in:' .. fan_in, '-1') end
end
redis.call('ZADD', due, whole(now_ms()), member)
return 1
