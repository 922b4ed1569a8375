-- Store the message of a user to the agents of an open job.
-- KEYS job, due.  ARGV: event, id of the message, digest of its text, step ('' for all agents),
-- {open: statuses of open jobs, readers: handoffs that are the only readers (empty: there are
-- others), version: version of the journal at which the sender found a reader (null: any)} (JSON),
-- most messages of a job, then pairs of digest and compressed payload.
-- A message with a known id is the same message, sent again.
-- Returns {'ok', version of its event} | {'unknown'} | {'ended'} | {'full'} | {'other'}: the id
-- belongs to another message | {'changed'}: the journal has another version, so that the last
-- reader may have ended | {'last_turn'}: no reader takes a message any more.
local job, due, id, digest, step = KEYS[1], KEYS[2], ARGV[2], ARGV[3], ARGV[4]
local given = cjson.decode(ARGV[5])
local status, messages, cancelled = unpack(
  redis.call('HMGET', job, 'status', 'messages', 'cancelled')
)
local count, last = tonumber(messages or 0), version_of(job)
if not status then return { 'unknown' } end
for n = 1, count do
  local known = message_at(job, n)
  if known.id == id then
    if known.digest ~= digest or (known.step or '') ~= step then return { 'other' } end
    return { 'ok', known.version }
  end
end
if cancelled or not has_value(given.open, status) then return { 'ended' } end
if count >= tonumber(ARGV[6]) then return { 'full' } end
if type(given.version) == 'number' and given.version ~= last then return { 'changed' } end
local unable = 0
for _, handoff in ipairs(given.readers) do
  if redis.call('HEXISTS', handoff_key(job, handoff), 'takes_none') == 1 then
    unable = unable + 1
  end
end
if unable > 0 and unable == #given.readers then return { 'last_turn' } end
local at, version = now_ms(), last + 1
keep_payloads(job, ARGV, 7)
local message = {
  id = id, digest = digest, version = version, at = at, step = step ~= '' and step or nil,
}
append_trusted(
  job, ARGV, 1, 1, at,
  { messages = integer(count + 1), ['message:' .. integer(count + 1)] = cjson.encode(message) }
)
make_due_soon(due, job, at)
return { 'ok', version }
