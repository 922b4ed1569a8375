-- Values in Redis: numbers as text, the clock, fields of hashes, words and short lists.

-- Format a number that Lua has computed as an integer for Redis, which does not take -0 and 1e+15.
-- redis.call is slow with numbers.
local function integer(number)
  return string.format('%d', number)
end

-- Return a stored statistical figure, or `otherwise` if it is not a finite number: bad data must
-- not stop a job.
local function number_or(text, otherwise)
  local number = tonumber(text)
  if not number or number ~= number or math.abs(number) > 2 ^ 53 then return otherwise end
  return number
end

-- Return a text that a worker may have written; nil if it is longer than any text of ours. A script
-- that takes apart a text of 500 MB would keep Redis for minutes, and need several GB of memory.
local MAX_TEXT_BYTES = 2 ^ 20 -- bytes; the longest is the list of open questions about calls
local function short(text, most_bytes)
  return text and #text <= (most_bytes or MAX_TEXT_BYTES) and text or nil
end

-- Return the beginning of a name, a reason or an activity. Many handoffs may have a copy of it.
local MAX_LINE_BYTES = 1000 -- as in `script_arguments.py`
local function clip(text)
  return string.sub(text, 1, MAX_LINE_BYTES)
end

-- Return a stored payload of a job; false if it is missing, or longer than any message of a user
-- and any arguments of a call.
local function short_payload(job, digest)
  local payloads = job .. ':blob'
  if redis.call('HSTRLEN', payloads, digest) > MAX_TEXT_BYTES then return false end
  return redis.call('HGET', payloads, digest)
end

-- Return the time in Unix ms by Redis's clock. It stays the same while a script runs.
local read_ms
local function now_ms()
  if not read_ms then
    local time = redis.call('TIME')
    read_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  end
  return read_ms
end

-- Set fields of a hash at once; '' removes a field.
local function set_fields(key, fields)
  local set, removed = {}, {}
  for name, value in pairs(fields) do
    if value == '' then
      removed[#removed + 1] = name
    else
      set[#set + 1], set[#set + 2] = name, value
    end
  end
  if #set > 0 then redis.call('HSET', key, unpack(set)) end
  if #removed > 0 then redis.call('HDEL', key, unpack(removed)) end
end

-- Return whether a list has this value.
local function has_value(list, value)
  for _, other in ipairs(list) do
    if other == value then return true end
  end
  return false
end

-- Return whether a text of words has this word. `text` nil: no words.
local function has_word(text, word)
  return text and string.find(' ' .. text .. ' ', ' ' .. word .. ' ', 1, true) ~= nil
end

-- Push a text to a list that keeps the newest `most` texts, the newest first.
local function keep_newest(list, text, most, keep_ms)
  local length = redis.pcall('LPUSH', list, text)
  if type(length) == 'table' then -- the key is not a list: start again
    redis.call('DEL', list)
    length = redis.call('LPUSH', list, text)
  end
  if length > most then redis.call('LTRIM', list, '0', most - 1) end
  redis.call('PEXPIRE', list, integer(keep_ms))
end

-- Most values in one command: Lua's stack has room for a few thousand.
local MAX_AT_ONCE = 1000

-- Return an iterator over the entries of a list from position `first` to `last` (from 0), and
-- their positions. Workers write the list. After a long entry, the script reads few entries at
-- once: a worker that was taken over may have written entries of 500 MB. Otherwise it reads many,
-- because the search for each entry of a list of 100,000 would take 3 seconds.
local MAX_PART, LONG_BYTES = 128, 2 ^ 16
local function each_entry(list, first, last)
  local size, part, n = 1, {}, 0
  return function()
    if n == #part then
      if first > last then return nil end
      local end_of_part = math.min(first + size - 1, last)
      part, n = redis.call('LRANGE', list, integer(first), integer(end_of_part)), 0
      first, size = end_of_part + 1, math.min(2 * size, MAX_PART)
    end
    n = n + 1
    if #part[n] > LONG_BYTES then size = 1 end
    return part[n], first - #part + n - 1
  end
end

-- Return the members of a sorted set with scores from `min` to `max`, at most `most` of them and at
-- most MAX_MEMBERS_BYTES bytes. Workers write the set. A long member is left out: a worker that was
-- taken over may have written members of 500 MB. See `each_entry` for the number of members that
-- are read at once.
local MAX_MEMBER_BYTES, MAX_MEMBERS_BYTES = 1000, 2 ^ 23
local function short_members(set, min, max, most)
  local members, size, offset, bytes = {}, 1, 0, 0
  while offset < most and bytes < MAX_MEMBERS_BYTES do
    local count = math.min(size, most - offset)
    local part = redis.call(
      'ZRANGEBYSCORE', set, min, max, 'LIMIT', integer(offset), integer(count)
    )
    size, offset = math.min(2 * size, MAX_PART), offset + count
    for _, member in ipairs(part) do
      bytes = bytes + #member
      if #member <= MAX_MEMBER_BYTES then
        members[#members + 1] = member
      else
        size = 1
      end
    end
    if #part < count then break end
  end
  return members
end

-- Return the value of a JSON argument or of a short JSON text that a worker has written; nil for
-- ''. A longer text is an error. A text of 100 MB would keep Redis for a minute, and need 3 GB of
-- memory, which `maxmemory` does not count.
local MAX_JSON_BYTES = 2 ^ 17
local function from_json(text)
  if text == '' then return nil end
  if #text > MAX_JSON_BYTES then error('a JSON text has more than 131,072 bytes') end
  return cjson.decode(text)
end
