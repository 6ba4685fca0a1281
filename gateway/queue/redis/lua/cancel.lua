-- ARGV: id, reason

local j = job(ARGV[1])
if not j then return 'unknown' end
if not terminal(j) then cancel(j, ARGV[2]) end
return 'ok'
