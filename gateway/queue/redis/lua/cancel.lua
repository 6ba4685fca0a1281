-- ARGV: id, reason

local j = job(ARGV[1], begin(P .. 'job:' .. ARGV[1]) or false)
if not j then return 'unknown' end
if not terminal(j) then cancel(j, ARGV[2]) end
return 'ok'
