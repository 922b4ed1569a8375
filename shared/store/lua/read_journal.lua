-- Return events of a journal. Reads only.
-- KEYS job.  ARGV: version, most entries, most bytes.
-- Returns {entries after the version (see `entries_after`), version of the journal}
local job = KEYS[1]
local entries = entries_after(job, tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]))
return { entries, version_of(job) }
