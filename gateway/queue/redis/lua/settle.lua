-- ARGV: id, epoch, state, tokens, reason, token of this call

local j = job(ARGV[1], begin(P .. 'job:' .. ARGV[1]) or false)
if j and j.settled == ARGV[6] then return 'ok' end
local no = refuse(j, ARGV[2])
if no then return no end
if ARGV[3] == 'queued' and j.state == 'streaming' then return 'streaming' end
j.settled = ARGV[6]
if ARGV[3] == 'queued' then
  if ARGV[5] == '' then requeue(j, '') else retry(j, ARGV[5]) end
else
  finish(j, ARGV[3], ARGV[5])
  settle(j, num(ARGV[4]))
end
return 'ok'
