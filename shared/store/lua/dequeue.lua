-- An element of a queue's list was popped: the message that is first in its fair order is taken for it.
-- KEYS queue.  ARGV delivery tag of what the element holds, its member.  Returns what `first_of` does
return first_of(KEYS[1], ARGV[1], ARGV[2])
