-- The states of a job, and who is told of them.

local function each(list, f)
  for c in string.gmatch(list or '', '[^,]+') do f(c) end
end

-- status is a job as a client reads it.
local function status(j)
  local position, wait = 0, 0
  if j.state == 'queued' then position, wait = place(j) end
  return { j.id, exact(num(j.rev)), j.state, exact(num(j.epoch)), exact(position), exact(wait), j.reason or '' }
end

-- tell tells those who watch a job.
local function tell(j)
  j.rev = call('HINCRBY', P .. 'job:' .. j.id, 'rev', 1)
  if (j.watch or '') ~= '' then
    local news = status(j)
    table.insert(news, 1, 's')
    news = cjson.encode(news)
    each(j.watch, function(c) call('PUBLISH', P .. 'c:' .. c, news) end)
  end
end

local function telllog(j)
  each(j.readers, function(c) call('PUBLISH', P .. 'c:' .. c, cjson.encode({ 'l', j.id })) end)
end

local function wake(j) call('PUBLISH', P .. 'wake', lineof(j)) end

local function running(j) return j.state == 'leased' or j.state == 'streaming' end

local function terminal(j) return not running(j) and j.state ~= 'queued' end

-- repeatkey is where the job of an idempotency key is noted.
local function repeatkey(key, idem) return P .. 'rep:' .. #key .. ':' .. key .. ':' .. idem end

-- look sets when the sweeper has to look at a running job.
local function look(j)
  local at = num(j.expires)
  if j.state == 'streaming' and C.stall > 0 then at = math.min(at, num(j.moved) + C.stall) end
  call('ZADD', P .. 'run', at, j.id)
end

-- leavenode forgets the lease of a running job.
local function leavenode(j)
  call('ZREM', P .. 'run', j.id)
  bump(lineof(j), 'running', -1)
end

local function finish(j, state, reason)
  if running(j) then leavenode(j) else remove(j) end
  set(j, { state = state, reason = reason, ended = now, settled = j.settled or '' })
  call('DEL', P .. 'pay:' .. j.id)
  call('SREM', P .. 'own:' .. j.client, j.id)
  count(state)
  call('ZADD', P .. 'fin', now, j.id)
  call('PEXPIRE', P .. 'job:' .. j.id, C.keep)
  if num(j.logbytes) > 0 then call('PEXPIRE', P .. 'log:' .. j.id, C.keep) end
  if (j.idem or '') ~= '' then call('PEXPIRE', repeatkey(j.key, j.idem), C.keep) end
  tell(j)
  telllog(j)
end

-- settle charges a job's key for what the run has really taken, in the place of what it was thought to take.
local function settle(j, tokens)
  correct(lineof(j), j.key, charge(j, tokens) - num(j.charge))
  count('tokens', tokens)
end

local function lost(j) call('PUBLISH', P .. 'c:' .. j.holder, cjson.encode({ 'x', j.id, exact(num(j.epoch)) })) end

local function expire(j)
  local waited = string.format('%.3f', (now - num(j.sub)) / 1000000)
  finish(j, 'expired', 'no worker was free within ' .. waited .. 's')
end

local function cancel(j, reason)
  local was = running(j)
  if was then lost(j) end
  finish(j, 'cancelled', reason)
  if was then settle(j, num(j.taken)) end
end

-- requeue puts a leased job at the head of its line.
local function requeue(j, reason)
  leavenode(j)
  count('requeued')
  set(j, { state = 'queued', reason = reason, node = '', token = '', seq = 0, taken = 0, free = 0, settled = j.settled or '' })
  pushfront(j)
  tell(j)
  wake(j)
end

-- retry queues a job again, or fails it when it has lost its last attempt.
local function retry(j, reason)
  set(j, { attempts = num(j.attempts) + 1 })
  if j.attempts < C.attempts then return requeue(j, reason) end
  finish(j, 'failed', reason)
  settle(j, num(j.taken))
end

-- refuse says why a job can't be written to with an epoch, or nothing.
local function refuse(j, epoch)
  if not j then return 'unknown' end
  if running(j) and num(j.epoch) == num(epoch) then return nil end
  count('fenced')
  return 'fenced'
end

-- holder is the job that a lease is for, or nothing and why not.
local function holder(id, epoch)
  local j = job(id)
  local no = refuse(j, epoch)
  if no then return nil, no end
  return j
end
