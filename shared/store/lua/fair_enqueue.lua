-- Add messages of jobs to their queue: each adds one element to the list, and its own place in the
-- fair order of the queue. A worker that pops any element gets, by `fair_dequeue`, the first
-- message of that order.
-- A single message in an empty queue needs no order. Its element ends with ALONE, and has no place
-- until another message comes. Its entry in `handoff:out:QUEUE` stays until the claim, because a
-- worker may have popped the element.
-- The order is start-time fair queueing with messages of cost 1. Within a class of priority, the
-- score of a message is the larger of the lowest waiting score and its tenant's next score, which
-- then grows by one. So tenants take turns, each in its order of publication.
-- KEYS queue.  ARGV: first (1: before all messages of their class | 0), then for each message:
-- member (`job` or `job/handoff`), delivery tag, text.
-- Returns nothing
local queue, is_first = KEYS[1], ARGV[1] == '1'
local fair, out = 'handoff:fair:' .. queue, 'handoff:out:' .. queue
local CLASS = 2 ^ 40 -- scores of a class; its scores start again when the queue was empty
local ALONE = ' '

local whose, lowest, nexts = {}, {}, {}
local scores, messages, members = {}, {}, {}

local function job_in(member)
  local id = string.match(member, '^[^/]*')
  if not whose[id] then
    local f = redis.call('HMGET', 'handoff:{' .. id .. '}', 'tenant', 'priority')
    local base = f[2] == 'batch' and 2 * CLASS or CLASS
    whose[id] = { base = base, tenant = whole(base) .. ':' .. (f[1] or 'default') }
  end
  return whose[id]
end

local function score_of(base, tenant)
  if not lowest[base] then
    local first = redis.call(
      'ZRANGEBYSCORE', fair, '(' .. whole(base), '(' .. whole(base + CLASS), 'WITHSCORES', 'LIMIT',
      '0', '1'
    )[2]
    lowest[base] = tonumber(first or base + 1)
  end
  local score = math.max(
    lowest[base], nexts[tenant] or tonumber(redis.call('ZSCORE', fair .. ':next', tenant) or 0)
  )
  nexts[tenant] = score + 1
  return score
end

local function place(member, tag, message, goes_first)
  local job, entry, n = job_in(member), member .. ' ' .. tag, #scores
  scores[n + 1] = whole(goes_first and job.base or score_of(job.base, job.tenant))
  scores[n + 2] = entry
  messages[n + 1], messages[n + 2] = entry, message
  members[#members + 1] = member
end

local waiting = redis.call('LLEN', queue)
if waiting == 0 and #ARGV == 4 and redis.call('EXISTS', fair) == 0 then
  redis.call('LPUSH', queue, ARGV[4] .. ALONE)
  redis.call('ZADD', out, whole(now_ms()), ARGV[2])
  return
end
local other = waiting == 1 and redis.call('LINDEX', queue, 0)
if other and string.sub(other, -1) == ALONE then
  local _, its = pcall(cjson.decode, other)
  local headers = type(its) == 'table' and type(its.headers) == 'table' and its.headers or {}
  if headers['handoff-for'] then -- otherwise another application has added it
    local alone = string.sub(other, 1, -2)
    redis.call('LSET', queue, 0, alone)
    place(headers['handoff-for'], its.properties.delivery_tag, alone, headers['handoff-first'])
  end
end
local elements = {}
for n = 2, #ARGV, 3 do
  elements[#elements + 1] = ARGV[n + 2]
  place(ARGV[n], ARGV[n + 1], ARGV[n + 2], is_first)
end
redis.call(is_first and 'RPUSH' or 'LPUSH', queue, unpack(elements))
redis.call('ZADD', fair, unpack(scores))
redis.call('HSET', fair .. ':messages', unpack(messages))
redis.call('ZREM', out, unpack(members))
local turns = {}
for tenant, next in pairs(nexts) do turns[#turns + 1], turns[#turns + 2] = whole(next), tenant end
if #turns > 0 then redis.call('ZADD', fair .. ':next', unpack(turns)) end
