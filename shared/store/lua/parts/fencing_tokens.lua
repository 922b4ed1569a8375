-- Fencing tokens: refuse the writes of a stale worker, whose claim has ended.

-- Return whether a message's fence is the fence of a claim. `kept`: the hash's field `fence`, which
-- is the SHA-1 of the fence, so that a reader of Redis cannot write as the claim's holder. The
-- fence of a child job's claim is the id of the child, and is kept as it is.
local function is_fence(kept, fence)
  if not kept then return false end
  return kept == redis.sha1hex(fence) or (kept == fence and string.sub(fence, 1, 2) == 'j-')
end

-- Return why this claim may not write: nil (it may), 'lost' (the handoff has another claim, has
-- none, or has ended) or 'dropped' (no job needs it). `version`: of the job; `kept`, `state`: the
-- fields `fence` and `state` of the handoff's hash; `fence`: of the message. A script must not
-- write to a deleted or expired job: its hash would exist again, incomplete and without expiry.
local function fence_refusal(version, kept, state, fence)
  if not version or state == 'dropped' then return 'dropped' end
  if state ~= 'running' or not is_fence(kept, fence) then return 'lost' end
  return nil
end
