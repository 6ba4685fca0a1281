-- ARGV: member, what it says of itself, milliseconds that this holds. Returns 1 where it has been asked to drain, and takes the question back.

begin()
call('ZADD', P .. 'members', now + num(ARGV[3]) * 1000, ARGV[1])
call('HSET', P .. 'about', ARGV[1], ARGV[2])
return call('SREM', P .. 'drain', ARGV[1])
