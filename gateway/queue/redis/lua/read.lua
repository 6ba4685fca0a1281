-- ARGV: id, seq, client. Returns the sequence number of the first entry, that of the first of some entries from seq on, these, whether there are
-- more, how the job stands, what tells this log from one that the job had before it was forgotten, and the sequence number that comes next.

local j = job(ARGV[1], begin(P .. 'job:' .. ARGV[1]) or false)
if not j then return nil end
local key, first, seq, some = P .. 'log:' .. j.id, math.max(1, num(j.logfirst)), num(ARGV[2]), 256
local n = call('LLEN', key)
if not terminal(j) and not listed(j.readers, ARGV[3]) then
  j.readers = j.readers .. ARGV[3] .. ','
  write(j)
end
local from = math.max(seq, first)
local entries = {}
if from < first + n then entries = call('LRANGE', key, from - first, from - first + some - 1) end
local more = from + #entries < first + n
return { exact(first), exact(from), entries, more and 1 or 0, status(j), j.sub, exact(first + n) }
