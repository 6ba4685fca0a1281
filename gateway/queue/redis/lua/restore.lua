-- ARGV: id, epoch, key, line, cost, weight, charge, idempotency key, client, node, seq, tokens taken
-- A node tells of a run that the queue has forgotten and whose client may have part of the answer.

if begin(P .. 'job:' .. ARGV[1]) then return 'ok' end
local j = {
  id = ARGV[1], epoch = ARGV[2], key = ARGV[3], line = ARGV[4], cost = ARGV[5], weight = ARGV[6], charge = ARGV[7], idem = ARGV[8],
  holder = ARGV[9], node = ARGV[10], seq = ARGV[11], taken = ARGV[12], state = 'streaming', sub = exact(now), moved = exact(now),
  expires = exact(now + C.lease), attempts = '0', rev = '0', bytes = '0', dl = '0', client = '', token = '', watch = '', readers = '',
  settled = '', reason = '', free = '', logbytes = '', logfirst = '',
}
if j.idem ~= '' then call('SETNX', repeatkey(j.key, j.idem), j.id) end -- else it was sent again meanwhile, and what comes of that is whole
run(j.line, 1)
write(j)
look(j)
count('restored')
return 'ok'
