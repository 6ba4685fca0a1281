-- ARGV: id, epoch, entries...

local j, no = holder(ARGV[1], ARGV[2])
if not j then return no end
local key, bytes, first = P .. 'log:' .. j.id, num(j.logbytes), math.max(1, num(j.logfirst))
for i = 3, #ARGV do
  call('RPUSH', key, ARGV[2] .. ':' .. ARGV[i])
  bytes = bytes + #ARGV[i]
end
local n = call('LLEN', key)
while n > C.log_entries or bytes > C.log_bytes do
  local old = call('LPOP', key)
  bytes = bytes - (#old - string.find(old, ':', 1, true))
  n, first = n - 1, first + 1
end
j.logbytes, j.logfirst = exact(bytes), exact(first)
write(j)
telllog(j)
return 'ok'
