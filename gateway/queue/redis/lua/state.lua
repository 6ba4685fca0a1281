-- The states of a job, and who is told of them.

local function each(list, f)
  for c in string.gmatch(list, '[^,]+') do f(c) end
end

local function listed(list, name) return string.find(',' .. list, ',' .. name .. ',', 1, true) ~= nil end

local function running(j) return j.state == 'leased' or j.state == 'streaming' end

local function terminal(j) return not running(j) and j.state ~= 'queued' end

-- report is a job as a client reads it. One that doesn't wait has no position.
local function report(j, position, wait) return { j.id, j.rev, j.state, j.epoch, exact(position or 0), exact(wait or 0), j.reason } end

local function status(j)
  if j.state == 'queued' then return report(j, place(j)) end
  return report(j)
end

-- write keeps what is known of a job. What has ended is forgotten some time.
local function write(j)
  if terminal(j) then
    call('SET', P .. 'job:' .. j.id, encode(j), 'PX', C.keep)
  else
    call('SET', P .. 'job:' .. j.id, encode(j))
  end
end

-- tell writes a job that has another state, and tells those who watch it; of one that waits it needs the place.
local function tell(j, position, wait)
  j.rev = exact(num(j.rev) + 1)
  write(j)
  if j.watch == '' then return end
  local news = report(j, position, wait)
  table.insert(news, 1, 's')
  news = cjson.encode(news)
  each(j.watch, function(c) call('PUBLISH', P .. 'c:' .. c, news) end)
end

local function telllog(j)
  each(j.readers, function(c) call('PUBLISH', P .. 'c:' .. c, cjson.encode({ 'l', j.id })) end)
end

-- wake tells the claims that wait for a job of a line, if any do.
local function wake(cm)
  if call('EXISTS', P .. 'wait:' .. cm) == 1 then call('PUBLISH', P .. 'wake', cm) end
end

-- repeatkey is where the job of an idempotency key is noted.
local function repeatkey(key, idem) return P .. 'rep:' .. #key .. ':' .. key .. ':' .. idem end

-- noted says that a job is the one of its idempotency key: it need not be where the server had forgotten it, or the key is free.
local function noted(j) return j.idem ~= '' and call('GET', repeatkey(j.key, j.idem)) == j.id end

-- look sets when the sweeper has to look at a running job. It may come too soon, as after a heartbeat: then the sweeper sets it again.
local function look(j)
  local at = num(j.expires)
  if j.state == 'streaming' and C.stall > 0 then at = math.min(at, num(j.moved) + C.stall) end
  call('ZADD', P .. 'run', exact(at), j.id)
end

-- leavenode forgets the lease of a running job.
local function leavenode(j)
  call('ZREM', P .. 'run', j.id)
  run(j.line, -1)
end

local function finish(j, state, reason)
  if running(j) then leavenode(j) else remove(j) end
  j.state, j.reason = state, reason
  call('DEL', P .. 'pay:' .. j.id)
  call('SREM', P .. 'own:' .. j.client, j.id)
  count(state)
  call('ZADD', P .. 'fin', exact(now), j.id)
  if j.logbytes ~= '' then call('PEXPIRE', P .. 'log:' .. j.id, C.keep) end
  if noted(j) then
    local key = repeatkey(j.key, j.idem)
    -- What never ran frees its key: whoever sends it again is the first.
    if num(j.epoch) == 0 then call('DEL', key) else call('PEXPIRE', key, C.keep) end
  end
  tell(j)
  telllog(j)
end

-- settle charges a job's key for what the run has really taken, in the place of what it was thought to take.
local function settle(j, tokens)
  correct(j.line, j.key, charge(j, tokens) - num(j.charge))
  if tokens > 0 then count('tokens', tokens) end
end

local function lost(j) call('PUBLISH', P .. 'c:' .. j.holder, cjson.encode({ 'x', j.id, j.epoch })) end

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
  j.state, j.reason, j.node, j.token, j.seq, j.taken, j.free = 'queued', reason, '', '', '0', '0', ''
  pushfront(j)
  if j.watch == '' then tell(j) else tell(j, place(j)) end
  wake(j.line)
end

-- retry queues a job again, or fails it when it has lost its last attempt.
local function retry(j, reason)
  j.attempts = exact(num(j.attempts) + 1)
  if num(j.attempts) < C.attempts then return requeue(j, reason) end
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
  local j = job(id, begin(P .. 'job:' .. id) or false)
  local no = refuse(j, epoch)
  if no then return nil, no end
  return j
end
