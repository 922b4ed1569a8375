-- Part of the scripts that begin or end an evaluation of a job. The field `looks` of the job's hash
-- has an entry ID:MS for each evaluation that began after the last one that ended, in order. MS is
-- the time of its last heartbeat (Unix ms). `evaluation_lease.py` describes the rules.

-- Return the noted evaluations, from the text of the field or false.
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

-- Note the evaluation. A repeated note changes nothing, and the name '' notes nothing. `looks`: the
-- noted evaluations if the caller has read them.
local function begin_look(job, name, at, looks)
  if name == '' then return end
  looks = looks or looks_of(redis.call('HGET', job, 'looks'))
  if is_among(looks, name) then return end
  looks[#looks + 1] = { name = name, heard = at }
  redis.call('HSET', job, 'looks', written(looks))
end

-- Store a heartbeat of a noted evaluation. An evaluation without a note gets none: while the
-- supervisor runs a role's handoff itself, the claim replaces the note.
local function heard_of(job, name, at)
  local looks = looks_of(redis.call('HGET', job, 'looks'))
  if not is_among(looks, name) then return end
  for _, look in ipairs(looks) do
    if look.name == name then look.heard = at end
  end
  redis.call('HSET', job, 'looks', written(looks))
end

-- Return the field without this evaluation and all earlier ones; '' if none is left; nil if the
-- evaluation is not noted, and the field stays.
local function without(name, text)
  if name == '' then return nil end
  local looks = looks_of(text)
  if not is_among(looks, name) then return nil end
  while table.remove(looks, 1).name ~= name do end
  return written(looks)
end

-- Remove the notes of this evaluation and of all earlier ones.
local function end_look(job, name, text)
  put(job, { looks = without(name, text) })
end
