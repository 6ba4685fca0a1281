-- ARGV: id, epoch, state, tokens, reason, token of this call

local known = call('HMGET', P .. 'job:' .. ARGV[1], 'settled')
if known[1] and known[1] == ARGV[6] then return 'ok' end
local j, no = holder(ARGV[1], ARGV[2])
if not j then return no end
if ARGV[3] == 'queued' and j.state == 'streaming' then return 'streaming' end
set(j, { settled = ARGV[6] })
if ARGV[3] == 'queued' then
  if ARGV[5] == '' then requeue(j, '') else retry(j, ARGV[5]) end
else
  finish(j, ARGV[3], ARGV[5])
  settle(j, num(ARGV[4]))
end
return 'ok'
