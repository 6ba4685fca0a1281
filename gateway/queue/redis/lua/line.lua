-- What every script begins with: names of keys, the clock, and the lines in which jobs wait. The server's clock, C, the limits, and the
-- functions decode and encode of a job's record stand before it.
--
-- A queue's keys share the hash tag of KEYS[1]. cm is class:model, the name of a line.
--   job:ID   record of a job                   pay:ID   what its node gets   log:ID   its log, epoch:data
--   t:CM     keys that wait, by tag            k:CM     their turn and end   i:CM     tags of keys that don't wait
--   l:N:CM:K the jobs of key K, by mark        a:CM     jobs by age          m:CM     counts, virtual time, drain rate
--   lines    all CM                            use[:K]  what waits           late     waiting jobs by deadline
--   run      running jobs by when to look      fin      ended jobs by end    wait:CM  claims that found nothing
--   clients  gateways by when they are dead    own:C    their jobs           c:C      channel of a client
--   clock    the queue's time                  stats    counters             tok:T    job of a claim
--
-- A call costs about what a dozen lines of Lua cost, and a number as its argument as much again. So what changes together is one text
-- (job, m, use, clock), read once a script and written once, and numbers are made texts by exact.
local P = KEYS[1] .. ':'
local call, match = redis.call, string.match

local function num(x) return tonumber(x or 0) or 0 end

local function exact(x)
  if x % 1 == 0 and x < 9e15 and x > -9e15 then return string.format('%d', x) end
  return string.format('%.17g', x)
end

-- now is the queue's own time, in microseconds. It follows the server's clock while somebody looks every now and then. When that jumps, or
-- the server stood still, or nobody was there, it goes on from where it was, so that nothing is late that had no chance to be in
-- time; and those who hold leases get grace to say so. It is written down when it has moved by a tick.
local now, grace

-- begin sets the time, and returns the texts of some keys besides.
local function begin(...)
  local got = call('MGET', P .. 'clock', ...)
  local seen, queue, late = match(got[1] or '', '^(%S+) (%S+) (%S+)$')
  local server = clock()
  local step, write = server - num(seen), true
  now, grace = num(queue), num(late)
  if not seen then
    now = server
  elseif step > C.lease / 2 or step < -C.lease / 2 then
    grace = now + C.lease
  elseif step >= 0 then
    now, write = now + step, step >= C.tick
  end
  if write then call('SET', P .. 'clock', exact(server) .. ' ' .. exact(now) .. ' ' .. exact(grace)) end
  return unpack(got, 2, select('#', ...) + 1)
end

local function lane(cm, key) return P .. 'l:' .. #cm .. ':' .. cm .. ':' .. key end

local function job(id, raw)
  if raw == nil then raw = call('GET', P .. 'job:' .. id) end
  return raw and decode(id, raw) or nil
end

local function count(name, by) call('HINCRBY', P .. 'stats', name, exact(by or 1)) end

-- What is counted of lines, and of what waits in all and of each key: read when it is first asked for, written by save.
local lines, used = {}, {}

-- line is what is known of a line. raw is its text, if it was read already; false is none.
local function line(cm, raw)
  local m = lines[cm]
  if m then return m end
  if raw == nil then raw = call('GET', P .. 'm:' .. cm) end
  local jobs, tokens, running, n, since, left, took, last, v = match(raw or '', '^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
  m = {
    new = not jobs, jobs = num(jobs), tokens = num(tokens), running = num(running), n = num(n), since = num(since), left = num(left),
    took = num(took), last = num(last), v = num(v),
  }
  lines[cm] = m
  return m
end

-- use is what waits of a key, or in all, by the end of its name.
local function use(name, raw)
  local u = used[name]
  if u then return u end
  if raw == nil then raw = call('GET', P .. 'use' .. name) end
  local jobs, tokens, bytes = match(raw or '', '^(%S+) (%S+) (%S+)$')
  u = { num(jobs), num(tokens), num(bytes) }
  used[name] = u
  return u
end

-- save writes what has changed of both.
local function save()
  local all = {}
  for cm, m in pairs(lines) do
    if m.changed then
      if m.new then call('SADD', P .. 'lines', cm) end
      all[#all + 1] = P .. 'm:' .. cm
      all[#all + 1] = string.format(
        '%d %d %d %d %d %.17g %.17g %d %.17g', m.jobs, m.tokens, m.running, m.n, m.since, m.left, m.took, m.last, m.v
      )
    end
  end
  for name, u in pairs(used) do
    if u.changed and u[1] == 0 then
      call('DEL', P .. 'use' .. name)
    elseif u.changed then
      all[#all + 1] = P .. 'use' .. name
      all[#all + 1] = string.format('%d %d %d', u[1], u[2], u[3])
    end
  end
  for i = 1, #all, 1000 do call('MSET', unpack(all, i, math.min(i + 999, #all))) end
end

local function run(cm, by)
  local m = line(cm)
  m.running, m.changed = m.running + by, true
end

local function charge(j, tokens) return math.max(1, tokens) / num(j.weight) end

-- The turns of the keys. A member is the turn, 16 digits, and the key, so that equal tags go by turn. What is kept of a key is its
-- turn, and the mark that its next job gets.
local function insert(cm, key, tag, turn, mark)
  turn = string.format('%016d', turn)
  call('ZADD', P .. 't:' .. cm, exact(tag), turn .. key)
  call('HSET', P .. 'k:' .. cm, key, turn .. exact(mark))
end

local function put(cm, key, tag, mark)
  local m = line(cm)
  m.n, m.changed = m.n + 1, true
  insert(cm, key, tag, 1000000000000000 + m.n, mark)
end

-- turn is the member of a key that waits and the mark of its next job, or nothing.
local function turn(cm, key)
  local kept = call('HGET', P .. 'k:' .. cm, key)
  if kept then return string.sub(kept, 1, 16) .. key, num(string.sub(kept, 17)) end
end

local function tagof(cm, member) return num(call('ZSCORE', P .. 't:' .. cm, member)) end

local function idle(cm, key) return num(call('ZSCORE', P .. 'i:' .. cm, key)) end

-- leave remembers the tag of a key without waiting jobs, as long as it means anything.
local function leave(cm, key, tag)
  if tag > line(cm).v then
    call('ZADD', P .. 'i:' .. cm, exact(tag), key)
  else
    call('ZREM', P .. 'i:' .. cm, key)
  end
end

-- correct charges a key that much more, or less.
local function correct(cm, key, by)
  if by == 0 then return end
  local v, member = line(cm).v, turn(cm, key)
  if not member then return leave(cm, key, math.max(v, idle(cm, key)) + by) end
  call('ZADD', P .. 't:' .. cm, exact(math.max(v, tagof(cm, member) + by)), member)
end

local function ends(cm, key, which)
  local got = call(which, lane(cm, key), '0', '0', 'WITHSCORES')
  return got[1], num(got[2])
end

-- wait counts a job that begins or ceases to wait.
local function wait(j, sign)
  local m, cost, bytes, own = line(j.line), num(j.cost), num(j.bytes), ':' .. j.key
  if not used[''] and not used[own] then
    local raw = call('MGET', P .. 'use', P .. 'use' .. own)
    use('', raw[1])
    use(own, raw[2])
  end
  m.jobs, m.tokens, m.changed = m.jobs + sign, m.tokens + sign * cost, true
  for _, name in ipairs({ '', own }) do
    local u = use(name)
    u[1], u[2], u[3], u.changed = u[1] + sign, u[2] + sign * cost, u[3] + sign * bytes, true
  end
end

local function added(j, mark)
  call('ZADD', lane(j.line, j.key), exact(mark), j.id)
  call('ZADD', P .. 'a:' .. j.line, j.sub, j.id)
  if j.dl ~= '0' then call('ZADD', P .. 'late', j.dl, j.id) end
  wait(j, 1)
  if line(j.line).jobs == 1 then line(j.line).since = now end
end

-- tail is where a new job of a key would stand: the tag and the member that it starts by, its mark, and how many of the key are before it.
local function tail(cm, key)
  local member, mark = turn(cm, key)
  if not member then return math.max(line(cm).v, idle(cm, key)), nil, 0, 0 end
  local _, first = ends(cm, key, 'ZRANGE')
  return tagof(cm, member) - first + mark, member, mark, call('ZCARD', lane(cm, key))
end

-- push queues a new job at the tail of its key.
local function push(j, tag, member, mark)
  local cm, key, after = j.line, j.key, mark + num(j.charge)
  if member then
    call('HSET', P .. 'k:' .. cm, key, string.sub(member, 1, 16) .. exact(after))
  else
    put(cm, key, tag, after)
    if tag > line(cm).v then call('ZREM', P .. 'i:' .. cm, key) end
  end
  added(j, mark)
end

-- pushfront queues a job again that has had its turn: it goes next, and its key isn't charged for it.
local function pushfront(j)
  local cm, key = j.line, j.key
  local c, mark, tag = num(j.charge), 0, nil
  local member, after = turn(cm, key)
  if member then
    local _, first = ends(cm, key, 'ZRANGE')
    mark, tag = first - c, tagof(cm, member)
    call('ZREM', P .. 't:' .. cm, member)
  else
    tag, after = idle(cm, key), c
    call('ZREM', P .. 'i:' .. cm, key)
  end
  tag = math.max(line(cm).v, tag - c)
  local nth, least = 1000000000000000, call('ZRANGE', P .. 't:' .. cm, '0', '0', 'WITHSCORES')
  if least[1] then
    tag = math.min(tag, num(least[2]))
    nth = math.min(nth, num(string.sub(least[1], 1, 16)) - 1)
  end
  insert(cm, key, tag, nth, after)
  added(j, mark)
end

-- aside takes a job out of all but the turns.
local function aside(j)
  local m = line(j.line)
  call('ZREM', lane(j.line, j.key), j.id)
  call('ZREM', P .. 'a:' .. j.line, j.id)
  if j.dl ~= '0' then call('ZREM', P .. 'late', j.id) end
  wait(j, -1)
  if m.jobs == 0 then m.since = 0 end
end

-- behind is the mark of the next job of a key, or nothing when none waits.
local function behind(cm, key)
  local id, mark = ends(cm, key, 'ZREVRANGE')
  return id and mark + num(job(id).charge)
end

-- remove takes a job out of its line. Its key keeps its turn unless it has nothing left.
local function remove(j)
  local cm, key = j.line, j.key
  aside(j)
  local member, mark = turn(cm, key), behind(cm, key)
  if not member then return end
  if mark then
    call('HSET', P .. 'k:' .. cm, key, string.sub(member, 1, 16) .. exact(mark))
    return
  end
  local tag = tagof(cm, member)
  call('ZREM', P .. 't:' .. cm, member)
  call('HDEL', P .. 'k:' .. cm, key)
  leave(cm, key, tag)
end

-- serve takes a job that is about to leave for a node out of its line, and charges its key. o.head is the least tag of the line; o has the
-- key's member and tag if they are known, and says if the job is aged, which need not be the first of its key.
local function serve(j, o)
  local cm, key, m = j.line, j.key, line(j.line)
  if o.head > m.v then
    m.v = o.head
    call('ZREMRANGEBYSCORE', P .. 'i:' .. cm, '-inf', exact(m.v))
  end
  local member = o.member or turn(cm, key)
  local tag = math.max(m.v, o.tag or tagof(cm, member)) + num(j.charge)
  call('ZREM', P .. 't:' .. cm, member)
  aside(j)
  if call('EXISTS', lane(cm, key)) == 1 then
    local _, mark = turn(cm, key)
    return put(cm, key, tag, o.aged and behind(cm, key) or mark)
  end
  call('HDEL', P .. 'k:' .. cm, key)
  leave(cm, key, tag)
end

-- depart notes that a job left for a node after it had to wait.
local function depart(m)
  if m.since == 0 then return end
  m.last = math.max(0, now - m.since)
  m.left, m.took = m.left * 0.95 + 1, m.took * 0.95 + m.last
  m.since, m.changed = now, true
end

-- measured is the time between departures as it was; 0 is unknown.
local function measured(m)
  if m.left == 0 then return 0 end
  return m.took / m.left
end

-- least is the shortest time between departures that there is reason to expect; 0 is unknown. The first departures of a line
-- say little: they count the time in which it filled. Three weigh 2.8525.
local function least(m)
  if m.left < 2.85 then return 0 end
  return math.min(measured(m), m.last)
end

-- gap is the time between departures: as measured, or as long as nothing has left, whichever is more. 0 is unknown.
local function gap(m) return math.max(measured(m), m.since > 0 and now - m.since or 0) end

-- ahead is how many jobs wait for the model of a line that are more urgent than it.
local function ahead(cm)
  local n = 0
  for class = 0, num(string.sub(cm, 1, 1)) - 1 do n = n + line(class .. string.sub(cm, 2)).jobs end
  return n
end

-- before is how many jobs of other keys go before one that starts at a tag; of those at the same, the member's turn decides. Of many
-- keys it looks at some, and takes the others for alike.
local function before(cm, key, start, member)
  local n, seen, scan, upto = 0, 0, 16, exact(start)
  local near = call('ZRANGEBYSCORE', P .. 't:' .. cm, '-inf', upto, 'WITHSCORES', 'LIMIT', '0', '16')
  for i = 1, #near, 2 do
    local other = string.sub(near[i], 17)
    seen = seen + 1
    if other ~= key then
      local _, first = ends(cm, other, 'ZRANGE')
      local bound = exact(start - num(near[i + 1]) + first)
      if near[i] > member then bound = '(' .. bound end
      n = n + call('ZCOUNT', lane(cm, other), '-inf', bound)
    end
  end
  if seen == scan then n = math.floor(n * call('ZCOUNT', P .. 't:' .. cm, '-inf', upto) / scan) end
  return n
end

-- place is a waiting job's position and how long it may have to wait.
local function place(j)
  local cm, key = j.line, j.key
  local l, member = lane(cm, key), turn(cm, key)
  local rank = call('ZRANK', l, j.id)
  if not member or not rank then return 0, 0 end
  local _, first = ends(cm, key, 'ZRANGE')
  local start = tagof(cm, member) + num(call('ZSCORE', l, j.id)) - first
  local n = ahead(cm) + rank + 1 + before(cm, key, start, member)
  return n, math.floor(n * gap(line(cm)))
end
