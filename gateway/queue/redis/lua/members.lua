-- Returns what all members that are there say of themselves, and forgets the others.

begin()
for _, gone in ipairs(call('ZRANGEBYSCORE', P .. 'members', '-inf', now)) do
  call('ZREM', P .. 'members', gone)
  call('HDEL', P .. 'about', gone)
  call('SREM', P .. 'drain', gone)
end
return call('HVALS', P .. 'about')
