-- Store a dead letter, and count it.
-- KEYS dead.  ARGV: the queue, the letter.  Returns nothing
redis.call('LPUSH', KEYS[1], ARGV[2])
add_to_metric('1', 'dead_letters', label('agent', ARGV[1]))
