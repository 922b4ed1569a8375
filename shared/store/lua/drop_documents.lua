-- Delete documents that no job has needed since a time.
-- KEYS used documents, then the documents.  ARGV: Unix ms.  Returns the number of deleted documents
local dropped = 0
for place = 2, #KEYS do
  local used_at = tonumber(redis.call('ZSCORE', KEYS[1], KEYS[place]) or -1)
  if used_at < tonumber(ARGV[1]) then dropped = dropped + redis.call('UNLINK', KEYS[place]) end
end
return dropped
