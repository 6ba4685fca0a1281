-- ARGV: member. Asks it to drain. Returns 1 where it is there.

begin()
if num(call('ZSCORE', P .. 'members', ARGV[1])) <= now then return 0 end
call('SADD', P .. 'drain', ARGV[1])
return 1
