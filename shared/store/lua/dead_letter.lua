-- Store a dead letter, and count it.
-- KEYS dead.  ARGV: the queue, the letter, most letters, seconds to keep them.  Returns nothing
keep_newest(KEYS[1], ARGV[2], tonumber(ARGV[3]), 1000 * ARGV[4])
add_to_metric('1', 'dead_letters', label('role', ARGV[1]))
