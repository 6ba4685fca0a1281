-- ARGV: waiter, models. Forgets a claim that has given up.

for m in string.gmatch(ARGV[2], '[^\1]+') do
  for class = 0, 2 do call('ZREM', P .. 'wait:' .. class .. ':' .. m, ARGV[1]) end
end
call('ZREM', P .. 'waiters', ARGV[1])
return 1
