-- ARGV: member. It is not there any more.

call('ZREM', P .. 'members', ARGV[1])
call('HDEL', P .. 'about', ARGV[1])
return call('SREM', P .. 'drain', ARGV[1])
