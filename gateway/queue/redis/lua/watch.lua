-- ARGV: client, ids... Returns how each job stands, and has the client told of what follows. An unknown job has no state.

local out = {}
for i = 2, #ARGV do
  local j = job(ARGV[i])
  if not j then
    out[#out + 1] = { ARGV[i], '0', '', '0', '0', '0', '' }
  else
    if not terminal(j) and not string.find(',' .. (j.watch or '') .. ',', ',' .. ARGV[1] .. ',', 1, true) then
      set(j, { watch = (j.watch or '') .. ARGV[1] .. ',' })
    end
    out[#out + 1] = status(j)
  end
end
return out
