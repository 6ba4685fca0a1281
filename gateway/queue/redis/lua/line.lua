-- What every script begins with: names of keys, and the lines in which jobs wait. The clock and C, the limits, stand before it.
--
-- A queue's keys share the hash tag of KEYS[1]. cm is class:model, the name of a line.
--   job:ID   what is known of a job            pay:ID   its payload          log:ID   its log, epoch:data
--   t:CM     keys that wait, by tag            k:CM     their members in t   i:CM     tags of keys that don't wait
--   l:N:CM:K the jobs of key K, by mark        a:CM     jobs by age          m:CM     counts, virtual time, drain rate
--   lines    all CM                            use[:K]  what waits           late     waiting jobs by deadline
--   run      running jobs by when to look      fin      ended jobs by end    wait:CM  claims that found nothing
--   clients  gateways by when they are dead    own:C    their jobs           c:C      channel of a client
--   clock    the queue's time                  stats    counters
local P = KEYS[1] .. ':'
local call = redis.call

local function num(x) return tonumber(x or 0) or 0 end

-- time is the queue's own, in microseconds. It follows the server's clock while somebody looks every now and then. When that jumps, or the
-- server stood still, or nobody was there, it goes on from where it was, so that nothing is late that had no chance to be in
-- time; and those who hold leases get grace to say so.
local function time()
  local seen = call('HMGET', P .. 'clock', 'server', 'queue', 'grace')
  local server, queue, grace = clock(), num(seen[2]), num(seen[3])
  local step = server - num(seen[1])
  if not seen[1] then
    queue = server
  elseif step > C.lease / 2 or step < -C.lease / 2 then
    grace = queue + C.lease
  else
    queue = queue + math.max(0, step)
  end
  call('HSET', P .. 'clock', 'server', server, 'queue', queue, 'grace', grace)
  return queue, grace
end
local now, grace = time()

local function exact(x) return string.format('%.17g', x) end

local function lane(cm, key) return P .. 'l:' .. #cm .. ':' .. cm .. ':' .. key end

local function lineof(j) return j.class .. ':' .. j.model end

local function job(id)
  local raw = call('HGETALL', P .. 'job:' .. id)
  if #raw == 0 then return nil end
  local j = { id = id }
  for i = 1, #raw, 2 do j[raw[i]] = raw[i + 1] end
  return j
end

local function set(j, fields)
  local args = {}
  for name, value in pairs(fields) do
    j[name] = value
    args[#args + 1] = name
    args[#args + 1] = value
  end
  call('HSET', P .. 'job:' .. j.id, unpack(args))
end

local function count(name, by) call('HINCRBY', P .. 'stats', name, by or 1) end

-- What is counted of a line is read once a script.
local metas = {}

local function meta(cm, field)
  local m = metas[cm]
  if not m then
    m = {}
    local raw = call('HGETALL', P .. 'm:' .. cm)
    for i = 1, #raw, 2 do m[raw[i]] = raw[i + 1] end
    metas[cm] = m
  end
  return num(m[field])
end

local function keep(cm, field, value)
  call('HSET', P .. 'm:' .. cm, field, value)
  if metas[cm] then metas[cm][field] = value end
end

local function bump(cm, field, by)
  local n = call('HINCRBY', P .. 'm:' .. cm, field, by)
  if metas[cm] then metas[cm][field] = n end
  return n
end

local function charge(j, tokens) return math.max(1, tokens) / num(j.weight) end

-- The turns of the keys. A member is the turn, 16 digits, and the key, so that equal tags go by turn.
local function insert(cm, key, tag, turn)
  local member = string.format('%016d', turn) .. key
  call('ZADD', P .. 't:' .. cm, tag, member)
  call('HSET', P .. 'k:' .. cm, key, member)
end

local function put(cm, key, tag)
  insert(cm, key, tag, 1000000000000000 + bump(cm, 'n', 1))
end

-- take takes a key out of the turns and returns its tag, or nothing.
local function take(cm, key)
  local member = call('HGET', P .. 'k:' .. cm, key)
  if not member then return nil end
  local tag = num(call('ZSCORE', P .. 't:' .. cm, member))
  call('ZREM', P .. 't:' .. cm, member)
  call('HDEL', P .. 'k:' .. cm, key)
  return tag
end

local function idle(cm, key) return num(call('ZSCORE', P .. 'i:' .. cm, key)) end

-- leave remembers the tag of a key without waiting jobs, as long as it means anything.
local function leave(cm, key, tag)
  if tag > meta(cm, 'v') then
    call('ZADD', P .. 'i:' .. cm, tag, key)
  else
    call('ZREM', P .. 'i:' .. cm, key)
  end
end

-- correct charges a key that much more, or less.
local function correct(cm, key, by)
  local v, member = meta(cm, 'v'), call('HGET', P .. 'k:' .. cm, key)
  if not member then return leave(cm, key, math.max(v, idle(cm, key)) + by) end
  local tag = num(call('ZSCORE', P .. 't:' .. cm, member))
  call('ZADD', P .. 't:' .. cm, math.max(v, tag + by), member)
end

local function uses(j, sign)
  local jobs
  for _, use in ipairs({ P .. 'use', P .. 'use:' .. j.key }) do
    jobs = call('HINCRBY', use, 'jobs', sign)
    call('HINCRBY', use, 'tokens', sign * num(j.cost) + 0)
    call('HINCRBY', use, 'bytes', sign * num(j.bytes) + 0)
  end
  if jobs == 0 then call('DEL', P .. 'use:' .. j.key) end
end

local function added(cm, j)
  call('ZADD', P .. 'a:' .. cm, j.sub, j.id)
  bump(cm, 'tokens', j.cost)
  if bump(cm, 'jobs', 1) == 1 then keep(cm, 'since', now) end
  if num(j.dl) > 0 then call('ZADD', P .. 'late', j.dl, j.id) end
  uses(j, 1)
end

-- push queues a new job behind those of its key.
local function push(j)
  local cm, key = lineof(j), j.key
  local last = call('ZREVRANGE', lane(cm, key), 0, 0, 'WITHSCORES')
  local mark = 0
  if last[1] then
    mark = num(last[2]) + num(call('HGET', P .. 'job:' .. last[1], 'charge'))
  else
    put(cm, key, math.max(meta(cm, 'v'), idle(cm, key)))
    call('ZREM', P .. 'i:' .. cm, key)
    call('SADD', P .. 'lines', cm)
  end
  call('ZADD', lane(cm, key), mark, j.id)
  added(cm, j)
end

-- pushfront queues a job again that has had its turn: it goes next, and its key isn't charged for it.
local function pushfront(j)
  local cm, key = lineof(j), j.key
  local c, v, mark = num(j.charge), meta(cm, 'v'), 0
  local first = call('ZRANGE', lane(cm, key), 0, 0, 'WITHSCORES')
  local tag = take(cm, key)
  if tag then
    mark = num(first[2]) - c
  else
    tag = idle(cm, key)
    call('ZREM', P .. 'i:' .. cm, key)
    call('SADD', P .. 'lines', cm)
  end
  tag = math.max(v, tag - c)
  local turn, least = 1000000000000000, call('ZRANGE', P .. 't:' .. cm, 0, 0, 'WITHSCORES')
  if least[1] then
    tag = math.min(tag, num(least[2]))
    turn = math.min(turn, num(string.sub(least[1], 1, 16)) - 1)
  end
  insert(cm, key, tag, turn)
  call('ZADD', lane(cm, key), mark, j.id)
  added(cm, j)
end

-- remove takes a job out of its line. Its key keeps its turn unless it has nothing left.
local function remove(j)
  local cm, key = lineof(j), j.key
  call('ZREM', lane(cm, key), j.id)
  if call('ZCARD', lane(cm, key)) == 0 then leave(cm, key, take(cm, key) or 0) end
  call('ZREM', P .. 'a:' .. cm, j.id)
  if num(j.dl) > 0 then call('ZREM', P .. 'late', j.id) end
  bump(cm, 'tokens', 0 - num(j.cost))
  if bump(cm, 'jobs', -1) == 0 then keep(cm, 'since', 0) end
  uses(j, -1)
end

-- serve charges the key of a job that is about to leave for a node.
local function serve(j)
  local cm, key = lineof(j), j.key
  local turns, least = P .. 't:' .. cm, call('ZRANGE', P .. 't:' .. cm, 0, 0, 'WITHSCORES')
  local v = meta(cm, 'v')
  if num(least[2]) > v then
    v = num(least[2])
    keep(cm, 'v', v)
    call('ZREMRANGEBYSCORE', P .. 'i:' .. cm, '-inf', v)
  end
  local member = call('HGET', P .. 'k:' .. cm, key)
  local tag = num(member == least[1] and least[2] or call('ZSCORE', turns, member))
  call('ZREM', turns, member)
  put(cm, key, math.max(v, tag) + num(j.charge))
end

-- depart notes that a job left for a node after it had to wait.
local function depart(cm)
  local since = meta(cm, 'since')
  if since == 0 then return end
  local left, took = meta(cm, 'left') * 0.95 + 1, meta(cm, 'took') * 0.95 + now - since
  call('HSET', P .. 'm:' .. cm, 'left', left, 'took', took, 'last', now - since, 'since', now)
  metas[cm] = nil
end

-- measured is the time between departures as it was; 0 is unknown.
local function measured(cm)
  local left = meta(cm, 'left')
  if left == 0 then return 0 end
  return meta(cm, 'took') / left
end

-- least is the shortest time between departures that there is reason to expect; 0 is unknown. The first departures of a line
-- say little: they count the time in which it filled. Three weigh 2.8525.
local function least(cm)
  if meta(cm, 'left') < 2.85 then return 0 end
  return math.min(measured(cm), meta(cm, 'last'))
end

-- gap is the time between departures: as measured, or as long as nothing has left, whichever is more. 0 is unknown.
local function gap(cm)
  local since = meta(cm, 'since')
  return math.max(measured(cm), since > 0 and now - since or 0)
end

local function ahead(class, model)
  local n = 0
  for c = 0, class - 1 do n = n + meta(c .. ':' .. model, 'jobs') end
  return n
end

-- before is how many jobs of other keys go before one that starts at a tag; of those at the same, the member's turn decides. Of many
-- keys it looks at some, and takes the others for alike.
local function before(cm, key, start, member)
  local n, seen, scan = 0, 0, 16
  local near = call('ZRANGEBYSCORE', P .. 't:' .. cm, '-inf', exact(start), 'WITHSCORES', 'LIMIT', 0, scan)
  for i = 1, #near, 2 do
    local other = string.sub(near[i], 17)
    seen = seen + 1
    if other ~= key then
      local l = lane(cm, other)
      local first = call('ZRANGE', l, 0, 0, 'WITHSCORES')
      local bound = exact(start - num(near[i + 1]) + num(first[2]))
      if near[i] > member then bound = '(' .. bound end
      n = n + call('ZCOUNT', l, '-inf', bound)
    end
  end
  if seen == scan then n = math.floor(n * call('ZCOUNT', P .. 't:' .. cm, '-inf', exact(start)) / scan) end
  return n
end

-- place is a waiting job's position and how long it may have to wait.
local function place(j)
  local cm, key = lineof(j), j.key
  local l, member = lane(cm, key), call('HGET', P .. 'k:' .. cm, key)
  local rank = call('ZRANK', l, j.id)
  if not member or not rank then return 0, 0 end
  local first = call('ZRANGE', l, 0, 0, 'WITHSCORES')
  local start = num(call('ZSCORE', P .. 't:' .. cm, member)) + num(call('ZSCORE', l, j.id)) - num(first[2])
  local n = ahead(num(j.class), j.model) + rank + 1 + before(cm, key, start, member)
  return n, math.floor(n * gap(cm))
end
