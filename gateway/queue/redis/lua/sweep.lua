-- What time alone brings about: leases nobody keeps up, deadlines, gateways that are gone. Some of each a call; returns
-- whether there is more.

begin()
local some, more = 100, 0

local function due(set, before)
  local ids = call('ZRANGEBYSCORE', P .. set, '-inf', before, 'LIMIT', 0, some)
  if #ids == some then more = 1 end
  return ids
end

-- overdue says why a running job loses its lease, or nothing.
local function overdue(j)
  if now >= num(j.expires) then
    return string.format('node %s has not been heard of for %gs', j.node, C.lease / 1000000)
  end
  if j.state == 'streaming' and C.stall > 0 and now - num(j.moved) >= C.stall then
    return string.format('node %s has made no progress for %gs', j.node, C.stall / 1000000)
  end
end

local function lose(j, why)
  count('lost')
  lost(j)
  if j.state ~= 'streaming' then return retry(j, why) end
  finish(j, 'failed', why)
  settle(j, num(j.taken))
end

-- leases takes the newest first, so that the oldest ends up at the head of its line.
local function leases()
  local jobs = {}
  for _, id in ipairs(due('run', now)) do
    local j = job(id)
    if not j or not running(j) then
      call('ZREM', P .. 'run', id)
    elseif overdue(j) then
      jobs[#jobs + 1] = j
    else
      look(j)
    end
  end
  table.sort(jobs, function(a, b) return num(a.sub) > num(b.sub) end)
  for _, j in ipairs(jobs) do lose(j, overdue(j)) end
end

local function deadlines()
  for _, id in ipairs(due('late', now)) do
    local j = job(id)
    if j and j.state == 'queued' then expire(j) else call('ZREM', P .. 'late', id) end
  end
end

-- gateways cancels the jobs of those that are gone, but for jobs whose client may ask for them again at another one.
local function gateways()
  for _, c in ipairs(due('clients', now)) do
    local ids = call('SRANDMEMBER', P .. 'own:' .. c, some)
    for _, id in ipairs(ids) do
      local j = job(id)
      if j and not terminal(j) and j.idem == '' then cancel(j, 'the gateway that held this request is gone') end
      call('SREM', P .. 'own:' .. c, id)
    end
    if #ids < some then call('ZREM', P .. 'clients', c) else more = 1 end
  end
end

local function forget()
  call('ZREMRANGEBYSCORE', P .. 'waiters', '-inf', now)
  call('ZREMRANGEBYSCORE', P .. 'fin', '-inf', now - C.keep * 1000)
  local over = math.min(some, call('ZCARD', P .. 'fin') - C.keep_jobs)
  if over <= 0 then return end
  for _, id in ipairs(call('ZRANGE', P .. 'fin', 0, over - 1)) do
    local j = job(id)
    if j and noted(j) then call('DEL', repeatkey(j.key, j.idem)) end
    call('DEL', P .. 'job:' .. id, P .. 'log:' .. id)
    call('ZREM', P .. 'fin', id)
  end
end

if now >= grace then
  leases()
  gateways()
end
deadlines()
forget()
return more
