-- In front of the scripts that let a model call go, after the books and the pace.

-- Whether a call may be made: its worst case fits the budget, and its lane lets it go. Returns nil, nil, nil and what was taken; or why not:
-- what `reserve` says (and whose limit it is), or 'pace', ms and why.
local function let_go(job, h, worst, member, at)
  local no, level = reserve(job, h, worst)
  if no or not worst.pace then return no, level end
  local ms, taken_or_why = lanes().admit(worst.pace, member, at)
  if not ms then return nil, nil, nil, taken_or_why end
  unreserve(job, h) -- who waits for the provider keeps nobody from the budget
  return 'pace', ms, taken_or_why
end
