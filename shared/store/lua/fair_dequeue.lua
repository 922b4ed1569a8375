-- Take the first message of a queue's fair order, after a worker has popped an element of its list.
-- KEYS queue.  ARGV: delivery tag of the element's message.
-- Returns the result of `take_next_message`
return take_next_message(KEYS[1], ARGV[1])
