-- ARGV: id, epoch, seq, tokens taken

local j, no = holder(ARGV[1], ARGV[2])
if not j then return no end
local seq, taken = num(ARGV[3]), math.max(num(j.taken), num(ARGV[4]))
local begun = seq > 0 and j.state == 'leased'
local change = { expires = now + C.lease, taken = taken }
if seq > num(j.seq) then change.seq, change.moved = seq, now end
if begun then change.state = 'streaming' end
set(j, change)
look(j)
if begun then tell(j) end
return 'ok'
