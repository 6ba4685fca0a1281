-- ARGV: waiter, models as a JSON list. Forgets a claim that has given up.

for _, m in ipairs(cjson.decode(ARGV[2])) do
  for class = 0, 2 do call('ZREM', P .. 'wait:' .. class .. ':' .. m, ARGV[1]) end
end
call('ZREM', P .. 'waiters', ARGV[1])
return 1
