-- ARGV: id, epoch, key, model, class, cost, weight, charge, idempotency key, owner, client, node, seq, tokens taken
-- A node tells of a run that the queue has forgotten and whose client may have part of the answer.

if call('EXISTS', P .. 'job:' .. ARGV[1]) == 1 then return 'ok' end
local j = { id = ARGV[1] }
set(j, {
  epoch = ARGV[2], key = ARGV[3], model = ARGV[4], class = ARGV[5], cost = ARGV[6], weight = ARGV[7], charge = ARGV[8],
  idem = ARGV[9], owner = ARGV[10], client = '', holder = ARGV[11], node = ARGV[12], seq = ARGV[13], taken = ARGV[14],
  state = 'streaming', sub = now, moved = now, expires = now + C.lease, attempts = 0, rev = 0, bytes = 0, dl = 0,
  prefixes = '', token = '', watch = '',
})
if j.idem ~= '' then call('SET', repeatkey(j.key, j.idem), j.id) end
call('SADD', P .. 'lines', lineof(j))
bump(lineof(j), 'running', 1)
look(j)
count('restored')
return 'ok'
