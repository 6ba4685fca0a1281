-- ARGV: token, node, client, waiter, least class, models, loaded models, warm prefixes, whether the waiter is noted; models to
-- prefixes as JSON lists.
-- Returns the job, or nothing after it has noted the waiter.

local least = num(ARGV[5])
local models, loaded, warm = cjson.decode(ARGV[6]), {}, {}
for _, m in ipairs(cjson.decode(ARGV[7])) do loaded[m] = true end
for _, h in ipairs(cjson.decode(ARGV[8])) do warm[h] = true end

local function grant(j)
  return {
    j.id, exact(num(j.epoch)), j.key, j.model, j.class, j.cost, j.weight, exact(num(j.dl) > 0 and num(j.dl) - now or 0), j.idem,
    j.prefixes, j.owner, j.payload or call('GET', P .. 'pay:' .. j.id) or '',
  }
end

local function waiter(f)
  for _, m in ipairs(models) do
    for class = 0, least do f(P .. 'wait:' .. class .. ':' .. m) end
  end
  f(P .. 'waiters')
end

local function oldest(cm)
  local first = call('ZRANGE', P .. 'a:' .. cm, 0, 0, 'WITHSCORES')
  return first[1], num(first[2])
end

-- options are the lines that have something for the offer.
local function options()
  local all = {}
  for _, m in ipairs(models) do
    for class = 0, 2 do
      local o = { cm = class .. ':' .. m, class = class, loaded = loaded[m] }
      o.id, o.sub = oldest(o.cm)
      if o.id then
        if C.age > 0 then o.class = math.max(0, class - math.floor((now - o.sub) / C.age)) end
        o.aged = o.class < class
        if o.class <= least then all[#all + 1] = o end
      end
    end
  end
  return all
end

local function sooner(a, b)
  if not b or a.class ~= b.class then return not b or a.class < b.class end
  return a.sub < b.sub
end

-- best is the line to serve. One whose model is loaded is preferred as long as nobody waits too long for it.
local function best()
  local all, first, near = options(), nil, nil
  for _, o in ipairs(all) do
    if sooner(o, first) then first = o end
  end
  if not first or first.loaded or now - first.sub >= C.affinity_age then return first end
  for _, o in ipairs(all) do
    if o.loaded and o.class == first.class and sooner(o, near) then near = o end
  end
  return near or first
end

local function warmth(id)
  local n, most = 0, 0
  for h in string.gmatch(call('HGET', P .. 'job:' .. id, 'prefixes') or '', '[^,]+') do
    n = n + 1
    if warm[h] then most = n end
  end
  return most
end

-- choose is the next job of a line: that of the key whose turn it is, or of one whose turn is near and whose prefix is warm.
local function choose(cm)
  local turns = call('ZRANGE', P .. 't:' .. cm, 0, next(warm) and 15 or 0, 'WITHSCORES')
  local chosen, most = nil, 0
  for i = 1, #turns, 2 do
    if num(turns[i + 1]) > num(turns[2]) + C.affinity_slack then break end
    local id = call('ZRANGE', lane(cm, string.sub(turns[i], 17)), 0, 0)[1]
    local n = next(warm) and warmth(id) or 0
    if not chosen or n > most then chosen, most = id, n end
    if #turns == 2 or now - num(call('ZSCORE', P .. 'a:' .. cm, id)) >= C.affinity_age then break end
  end
  return chosen
end

local function pick()
  while true do
    local o = best()
    if not o then return nil end
    local j = job(o.aged and o.id or choose(o.cm))
    j.payload = call('GET', P .. 'pay:' .. j.id)
    if not j.payload then
      finish(j, 'failed', 'the queue has lost the payload of the job')
    elseif num(j.dl) == 0 or now < num(j.dl) then
      return j
    else
      expire(j)
    end
  end
end

local again = call('GET', P .. 'tok:' .. ARGV[1])
local held = again and job(again)
if held and running(held) and held.token == ARGV[1] then return grant(held) end

local j = pick()
if not j then
  waiter(function(k) call('ZADD', k, now + C.waiter, ARGV[4]) end)
  return nil
end
if ARGV[9] == '1' then waiter(function(k) call('ZREM', k, ARGV[4]) end) end
local cm = lineof(j)
if num(j.free) == 0 then depart(cm) end
serve(j)
remove(j)
bump(cm, 'running', 1)
set(j, {
  state = 'leased', epoch = num(j.epoch) + 1, node = ARGV[2], holder = ARGV[3], token = ARGV[1], expires = now + C.lease,
  moved = now, seq = 0, taken = 0,
})
look(j)
call('SET', P .. 'tok:' .. ARGV[1], j.id, 'PX', math.floor(C.lease / 1000))
tell(j)
return grant(j)
