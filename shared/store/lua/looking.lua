-- In front of the scripts with which a supervisor's look at a job begins or comes to its end. `looks` of the job's hash: LOOK:MS for each that
-- began and has not ended, since the last one that did, in the order in which they began, and when it was last heard of. What the rest says stands in `looks.py`.

-- `text`: the field, as it is.
local function looks_of(text)
  local looks = {}
  if not text then return looks end
  for look, heard in string.gmatch(text, '(%x+):(%d+)') do
    looks[#looks + 1] = { name = look, heard = tonumber(heard) }
  end
  return looks
end

local function written(looks)
  local words = {}
  for _, look in ipairs(looks) do words[#words + 1] = string.format('%s:%d', look.name, look.heard) end
  return table.concat(words, ' ')
end

local function is_among(looks, name)
  for _, look in ipairs(looks) do
    if look.name == name then return true end
  end
  return false
end

-- Said again, it is the same look. '' is none: whoever says it keeps no account of looks. `looks`: those that are noted, where that is known.
local function begin_look(job, name, at, looks)
  if name == '' then return end
  looks = looks or looks_of(redis.call('HGET', job, 'looks'))
  if is_among(looks, name) then return end
  looks[#looks + 1] = { name = name, heard = at }
  redis.call('HSET', job, 'looks', written(looks))
end

-- One that is noted goes on. While a role's handoff runs in its place it is not, and its claim shows that.
local function heard_of(job, name, at)
  local looks = looks_of(redis.call('HGET', job, 'looks'))
  if not is_among(looks, name) then return end
  for _, look in ipairs(looks) do
    if look.name == name then look.heard = at end
  end
  redis.call('HSET', job, 'looks', written(looks))
end

-- One came to its end: nothing that began before it speaks against the job any more. Returns the field as it is to be, '' where none is to be;
-- nil: as it is.
local function without(name, text)
  if name == '' then return nil end
  local looks = looks_of(text)
  if not is_among(looks, name) then return nil end
  while table.remove(looks, 1).name ~= name do end
  return written(looks)
end

local function end_look(job, name, text)
  put(job, { looks = without(name, text) })
end
