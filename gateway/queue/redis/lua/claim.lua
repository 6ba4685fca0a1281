-- ARGV: token, node, client, waiter, least class, models, loaded models, warm prefixes, whether the waiter is noted; each list has a
-- byte 1 between its words.
-- Returns the job's id, epoch, time left and what its node gets, or nothing after it has noted the waiter.

local least_class = num(ARGV[5])
local models, loaded, warm = {}, {}, {}
for m in string.gmatch(ARGV[6], '[^\1]+') do models[#models + 1] = m end
for m in string.gmatch(ARGV[7], '[^\1]+') do loaded[m] = true end
for h in string.gmatch(ARGV[8], '[^\1]+') do warm[h] = true end
local any_warm = ARGV[8] ~= ''

local function grant(j, payload) return { j.id, j.epoch, exact(j.dl ~= '0' and num(j.dl) - now or 0), payload or '' } end

local function waiter(f)
  for _, m in ipairs(models) do
    for class = 0, least_class do f(P .. 'wait:' .. class .. ':' .. m) end
  end
  f(P .. 'waiters')
end

-- options are the lines that have something for the offer, each with its oldest job.
local function options()
  local all = {}
  for _, m in ipairs(models) do
    for class = 0, (C.age > 0 and 2 or least_class) do
      local cm = class .. ':' .. m
      if line(cm).jobs > 0 then all[#all + 1] = { cm = cm, class = class, loaded = loaded[m] } end
    end
  end
  if #all == 1 and all[1].class == 0 then return all end -- its age makes no difference
  local fit = {}
  for _, o in ipairs(all) do
    local first = call('ZRANGE', P .. 'a:' .. o.cm, '0', '0', 'WITHSCORES')
    local class = o.class
    o.id, o.sub = first[1], num(first[2])
    if C.age > 0 then o.class = math.max(0, class - math.floor((now - o.sub) / C.age)) end
    o.aged = o.class < class
    if o.class <= least_class then fit[#fit + 1] = o end
  end
  return fit
end

local function sooner(a, b)
  if not b or a.class ~= b.class then return not b or a.class < b.class end
  return a.sub < b.sub
end

-- best is the line to serve. One whose model is loaded is preferred as long as nobody waits too long for it.
local function best()
  local all, first, near = options(), nil, nil
  if #all == 1 then return all[1] end
  for _, o in ipairs(all) do
    if sooner(o, first) then first = o end
  end
  if not first or first.loaded or now - first.sub >= C.affinity_age then return first end
  for _, o in ipairs(all) do
    if o.loaded and o.class == first.class and sooner(o, near) then near = o end
  end
  return near or first
end

-- warmth is how much of a job's prompt is warm. Its prefixes stand at the head of what its node gets: 64 of 17 bytes at most.
local function warmth(id)
  local n, most = 0, 0
  local prefixes = match(call('GETRANGE', P .. 'pay:' .. id, '0', '1100'), '^([^\1]*)\1')
  for h in string.gmatch(prefixes or '', '[^,]+') do
    n = n + 1
    if warm[h] then most = n end
  end
  return most
end

-- choose finds the next job of a line: that of the key whose turn it is, or of one whose turn is near and whose prefix is warm.
local function choose(o)
  local turns = call('ZRANGE', P .. 't:' .. o.cm, '0', any_warm and '15' or '0', 'WITHSCORES')
  local most
  o.head = num(turns[2])
  if o.aged then return end
  o.id = nil
  for i = 1, #turns, 2 do
    local tag = num(turns[i + 1])
    if tag > o.head + C.affinity_slack then break end
    local id = call('ZRANGE', lane(o.cm, string.sub(turns[i], 17)), '0', '0')[1]
    local n = any_warm and warmth(id) or 0
    if not o.id or n > most then o.id, most, o.member, o.tag = id, n, turns[i], tag end
    if #turns == 2 or now - num(call('ZSCORE', P .. 'a:' .. o.cm, id)) >= C.affinity_age then break end
  end
end

-- pick returns the job to run, how it was found and its payload.
local function pick()
  while true do
    local o = best()
    if not o then return nil end
    choose(o)
    local got = call('MGET', P .. 'job:' .. o.id, P .. 'pay:' .. o.id)
    local j = job(o.id, got[1])
    if not got[2] then
      finish(j, 'failed', 'the queue has lost the payload of the job')
    elseif j.dl == '0' or now < num(j.dl) then
      return j, o, got[2]
    else
      expire(j)
    end
  end
end

local keys = { P .. 'tok:' .. ARGV[1] }
for _, m in ipairs(models) do
  for class = 0, 2 do keys[#keys + 1] = P .. 'm:' .. class .. ':' .. m end
end
local found = { begin(unpack(keys)) }
for i, m in ipairs(models) do
  for class = 0, 2 do line(class .. ':' .. m, found[3 * i - 1 + class] or false) end
end
local held = found[1] and job(found[1])
if held and running(held) and held.token == ARGV[1] then return grant(held, call('GET', P .. 'pay:' .. held.id)) end

local j, o, payload = pick()
if not j then
  waiter(function(k) call('ZADD', k, exact(now + C.waiter), ARGV[4]) end)
  return nil
end
if ARGV[9] == '1' then waiter(function(k) call('ZREM', k, ARGV[4]) end) end
if j.free == '' then depart(line(j.line)) end
serve(j, o)
run(j.line, 1)
j.state, j.epoch, j.node, j.holder, j.token = 'leased', exact(num(j.epoch) + 1), ARGV[2], ARGV[3], ARGV[1]
j.expires, j.moved, j.seq, j.taken = exact(now + C.lease), exact(now), '0', '0'
look(j)
call('SET', P .. 'tok:' .. ARGV[1], j.id, 'PX', C.lease_ms)
tell(j)
return grant(j, payload)
