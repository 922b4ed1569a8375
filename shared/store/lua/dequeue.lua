-- An element of a queue's list was popped: take the first message of its fair order.
-- KEYS queue.  ARGV: delivery tag of the element's message, its member.  Returns the result of
-- `first_of`
return first_of(KEYS[1], ARGV[1], ARGV[2])
