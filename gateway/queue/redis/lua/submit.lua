-- ARGV: id, key, model, class, cost, weight, charge, microseconds until the deadline or 0, idempotency key, prefixes, floor, owner, client, payload

local j = {
  id = ARGV[1], key = ARGV[2], model = ARGV[3], class = ARGV[4], cost = ARGV[5], weight = ARGV[6], charge = ARGV[7],
  idem = ARGV[9], prefixes = ARGV[10], epoch = ARGV[11], owner = ARGV[12], client = ARGV[13], bytes = #ARGV[14],
  state = 'queued', sub = now, attempts = 0, rev = 0, free = 0, dl = 0, watch = '',
}
local cm = lineof(j)

local position -- once it is known

local function ticket(o)
  local n, wait = position, 0
  if o.state ~= 'queued' then
    n = 0
  elseif n then
    wait = n * gap(cm)
  else
    n, wait = place(o)
  end
  return { 'ok', o.id, o.state, exact(n), exact(math.floor(wait)) }
end

-- departures is how many jobs must leave until one more fits, by the mean of those waiting.
local function departures(jobs, have, more, limit)
  local mean = math.max(1, math.floor(have / math.max(1, jobs)))
  return math.min(jobs, math.ceil((have + more - limit) / mean))
end

local function full(limit, depth, most, wait)
  return { 'full', limit, exact(depth), exact(most), exact(math.floor(wait)) }
end

-- start is the tag and the turn that a new job of this key would have.
local function start()
  local l = lane(cm, j.key)
  local last = call('ZREVRANGE', l, 0, 0, 'WITHSCORES')
  if not last[1] then return math.max(meta(cm, 'v'), idle(cm, j.key)), '9', 0 end
  local member, first = call('HGET', P .. 'k:' .. cm, j.key), call('ZRANGE', l, 0, 0, 'WITHSCORES')
  local tag = num(call('ZSCORE', P .. 't:' .. cm, member)) - num(first[2]) + num(last[2])
  return tag + num(call('HGET', P .. 'job:' .. last[1], 'charge')), member, call('ZCARD', l)
end

-- intime says why the job can't be expected to start before its deadline, or nothing. In doubt it can.
local function intime()
  local g = least(cm)
  if j.dl == 0 or g == 0 then return nil end
  local tag, member, own = start()
  position = ahead(num(j.class), j.model) + own + before(cm, j.key, tag, member) + 1
  local wait, within = position * g, j.dl - now
  if wait <= within then return nil end
  return { 'full', 'deadline', exact(position), '0', exact(math.floor(wait - within)), exact(math.floor(wait)), exact(within) }
end

-- room says why the job may not wait, or nothing.
local function room()
  local g = gap(cm)
  local share = g * math.max(1, call('ZCARD', P .. 't:' .. cm))
  local names = { 'jobs', 'tokens', 'bytes' }
  local all, own = call('HMGET', P .. 'use', unpack(names)), call('HMGET', P .. 'use:' .. j.key, unpack(names))
  for i = 1, 3 do all[i], own[i] = num(all[i]), num(own[i]) end
  if all[1] >= C.jobs then return full('jobs', all[1], C.jobs, g) end
  if own[1] >= C.jobs_per_key then return full('jobs_per_key', own[1], C.jobs_per_key, share) end
  for i, more in ipairs({ num(j.cost), j.bytes }) do
    local name = names[i + 1]
    for _, u in ipairs({ { all, name, g }, { own, name .. '_per_key', share } }) do
      local have, limit = u[1][i + 1], C[u[2]]
      if u[1][1] > 0 and have + more > limit then
        return full(u[2], have, limit, u[3] * departures(u[1][1], have, more, limit))
      end
    end
  end
  return intime()
end

-- waited says whether more claims wait than jobs are there for them.
local function waited()
  if call('EXISTS', P .. 'wait:' .. cm) == 0 then return false end
  call('ZREMRANGEBYSCORE', P .. 'wait:' .. cm, '-inf', now)
  return call('ZCARD', P .. 'wait:' .. cm) > meta(cm, 'jobs')
end

local known = job(j.id)
if not known and j.idem ~= '' then
  local first = call('GET', repeatkey(j.key, j.idem))
  known = first and job(first)
end
if known then return ticket(known) end

if num(ARGV[8]) ~= 0 then j.dl = now + num(ARGV[8]) end
local waits = waited()
if waits then j.free = 1 end
local no = room()
if no and not waits then
  count('refused')
  return no
end
count('submitted')
set(j, j)
call('HDEL', P .. 'job:' .. j.id, 'id')
call('SET', P .. 'pay:' .. j.id, ARGV[14], 'PX', C.payload_ttl)
if j.idem ~= '' then call('SET', repeatkey(j.key, j.idem), j.id) end
call('SADD', P .. 'own:' .. j.client, j.id)
call('ZADD', P .. 'clients', now + C.lease, j.client)
push(j)
wake(j)
return ticket(j)
