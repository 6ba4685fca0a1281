-- ARGV: id, key, line, cost, weight, charge, microseconds until the deadline or 0, idempotency key, floor, client, bytes of the payload, what
-- its node gets

local j = {
  id = ARGV[1], key = ARGV[2], line = ARGV[3], cost = ARGV[4], weight = ARGV[5], charge = ARGV[6], idem = ARGV[8], epoch = ARGV[9],
  client = ARGV[10], bytes = ARGV[11], state = 'queued', rev = '0', seq = '0', taken = '0', expires = '', moved = '', attempts = '0',
  free = '', token = '', holder = '', settled = '', logbytes = '', logfirst = '', watch = '', readers = '', node = '', reason = '', dl = '0',
}
local cm, m = j.line, nil

local function ticket(o, n, wait) return { 'ok', o.id, o.state, exact(n), exact(math.floor(wait)) } end

-- again is the ticket of a job that is known already.
local function again(o)
  if o.state ~= 'queued' then return ticket(o, 0, 0) end
  return ticket(o, place(o))
end

-- departures is how many jobs must leave until one more fits, by the mean of those waiting.
local function departures(jobs, have, more, limit)
  local mean = math.max(1, math.floor(have / math.max(1, jobs)))
  return math.min(jobs, math.ceil((have + more - limit) / mean))
end

local function full(limit, depth, most, wait)
  return { 'full', limit, exact(depth), exact(most), exact(math.floor(wait)) }
end

-- at is where the job would stand, and the position that this is.
local at, position

local function find()
  if at then return end
  at = { tail(cm, j.key) }
  position = ahead(cm) + at[4] + before(cm, j.key, at[1], at[2] or '9') + 1
end

-- intime says why the job can't be expected to start before its deadline, or nothing. In doubt it can.
local function intime()
  local g = least(m)
  if j.dl == '0' or g == 0 then return nil end
  find()
  local wait, within = position * g, num(j.dl) - now
  if wait <= within then return nil end
  return { 'full', 'deadline', exact(position), '0', exact(math.floor(wait - within)), exact(math.floor(wait)), exact(within) }
end

-- share is how long it is until a job of this key leaves.
local function share() return gap(m) * math.max(1, call('ZCARD', P .. 't:' .. cm)) end

-- room says why the job may not wait, or nothing.
local function room()
  local all, own = use(''), use(':' .. j.key)
  if all[1] >= C.jobs then return full('jobs', all[1], C.jobs, gap(m)) end
  if own[1] >= C.jobs_per_key then return full('jobs_per_key', own[1], C.jobs_per_key, share()) end
  for i, name in ipairs({ 'tokens', 'bytes' }) do
    local more = num(i == 1 and j.cost or j.bytes)
    for _, u in ipairs({ all, own }) do
      local which = u == all and name or name .. '_per_key'
      local have, limit = u[i + 1], C[which]
      if u[1] > 0 and have + more > limit then
        return full(which, have, limit, (u == all and gap(m) or share()) * departures(u[1], have, more, limit))
      end
    end
  end
  return intime()
end

-- waits is how many claims wait for the line.
local function waits()
  if call('EXISTS', P .. 'wait:' .. cm) == 0 then return 0 end
  call('ZREMRANGEBYSCORE', P .. 'wait:' .. cm, '-inf', exact(now))
  return call('ZCARD', P .. 'wait:' .. cm)
end

local raw, counts, all, own = begin(P .. 'job:' .. j.id, P .. 'm:' .. cm, P .. 'use', P .. 'use:' .. j.key)
local known = raw and job(j.id, raw)
if not known and j.idem ~= '' then
  local first = call('GET', repeatkey(j.key, j.idem))
  known = first and job(first)
end
if known then return again(known) end

m = line(cm, counts or false)
use('', all or false)
use(':' .. j.key, own or false)
if ARGV[7] ~= '0' then j.dl = exact(now + num(ARGV[7])) end
local claims = waits()
local free = claims > m.jobs
if free then j.free = '1' end
local no = room()
if no and not free then
  count('refused')
  return no
end
find()
count('submitted')
j.sub = exact(now)
write(j)
call('SET', P .. 'pay:' .. j.id, ARGV[12], 'PX', C.payload_ttl)
if j.idem ~= '' then call('SET', repeatkey(j.key, j.idem), j.id) end
call('SADD', P .. 'own:' .. j.client, j.id)
call('ZADD', P .. 'clients', exact(now + C.lease), j.client)
push(j, at[1], at[2], at[3])
if claims > 0 then call('PUBLISH', P .. 'wake', cm) end

-- What the key and all have waiting now, as far as no claim is about to take it.
local t = ticket(j, position, position * gap(m))
all, own = use(''), use(':' .. j.key)
for _, u in ipairs({ own, all }) do
  t[#t + 1] = exact(u[1] - (free and 1 or 0))
  t[#t + 1] = exact(u[2] - (free and num(j.cost) or 0))
end
return t
