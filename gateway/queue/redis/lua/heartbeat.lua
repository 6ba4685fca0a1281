-- ARGV: id, epoch, seq, tokens taken

local j, no = holder(ARGV[1], ARGV[2])
if not j then return no end
local seq = num(ARGV[3])
j.expires, j.taken = exact(now + C.lease), exact(math.max(num(j.taken), num(ARGV[4])))
if seq > num(j.seq) then j.seq, j.moved = ARGV[3], exact(now) end
if seq == 0 or j.state ~= 'leased' then
  write(j)
  return 'ok'
end
j.state = 'streaming'
if C.stall > 0 and C.stall < C.lease then look(j) end
tell(j)
return 'ok'
