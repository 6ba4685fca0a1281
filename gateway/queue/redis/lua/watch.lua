-- ARGV: client, ids... Returns how each job stands, and has the client told of what follows. An unknown job has no state.

local keys = {}
for i = 2, #ARGV do keys[#keys + 1] = P .. 'job:' .. ARGV[i] end
local raw, out = { begin(unpack(keys)) }, {}
for i = 2, #ARGV do
  local j = job(ARGV[i], raw[i - 1] or false)
  if not j then
    out[#out + 1] = { ARGV[i], '0', '', '0', '0', '0', '' }
  else
    if not terminal(j) and not listed(j.watch, ARGV[1]) then
      j.watch = j.watch .. ARGV[1] .. ','
      write(j)
    end
    out[#out + 1] = status(j)
  end
end
return out
