-- ARGV: client, whether it goes on. Says that a gateway is there, so that its jobs aren't cancelled.

begin()
call('ZADD', P .. 'clients', ARGV[2] == '1' and now + C.lease or now, ARGV[1])
return 1
