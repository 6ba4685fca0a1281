-- Returns the counters, the claims that wait, and for each line: name, jobs, tokens, running, age of the oldest.

begin()
local all = {}
for _, cm in ipairs(call('SMEMBERS', P .. 'lines')) do
  local first = call('ZRANGE', P .. 'a:' .. cm, '0', '0', 'WITHSCORES')
  local m, age = line(cm), first[1] and math.max(0, now - num(first[2])) or 0
  all[#all + 1] = { cm, exact(m.jobs), exact(m.tokens), exact(m.running), exact(age) }
end
return { call('HGETALL', P .. 'stats'), call('ZCOUNT', P .. 'waiters', exact(now), '+inf'), all }
