-- Returns the counters, the claims that wait, and for each line: name, jobs, tokens, running, age of the oldest.

local lines = {}
for _, cm in ipairs(call('SMEMBERS', P .. 'lines')) do
  local first = call('ZRANGE', P .. 'a:' .. cm, 0, 0, 'WITHSCORES')
  local age = first[1] and now - num(first[2]) or 0
  lines[#lines + 1] = { cm, exact(meta(cm, 'jobs')), exact(meta(cm, 'tokens')), exact(meta(cm, 'running')), exact(age) }
end
return { call('HGETALL', P .. 'stats'), call('ZCOUNT', P .. 'waiters', now, '+inf'), lines }
