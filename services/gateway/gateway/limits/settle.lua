-- Settles a granted claim as MemoryLedger.settle does.
-- KEYS: the client's state, its streams by gateway.
-- ARGV: this gateway, when it was granted, difference of tokens, their window (0: without limit), slots of a window,
-- tolerance.
local gateway, granted_at, by = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local window, slots, tolerance = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])

-- Where its count is gone, the gateway was thought dead: there is nothing to give back.
if redis.call('HEXISTS', KEYS[2], gateway) == 1 and redis.call('HINCRBY', KEYS[2], gateway, -1) <= 0 then
  redis.call('HDEL', KEYS[2], gateway)
end
if window == 0 or by == 0 then return 0 end

local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local slot = window / slots
local raw = redis.call('GET', KEYS[1])
local state = raw and cmsgpack.unpack(raw) or { {}, {}, {}, {} }
local times, amounts = {}, {}
for j, at in ipairs(state[3]) do
  if at > now - window + tolerance then
    times[#times + 1] = math.min(at, now)
    amounts[#amounts + 1] = state[4][j]
  end
end
state[3], state[4] = times, amounts

if by < 0 then
  for j = 1, #times do
    if times[j] >= granted_at - tolerance then
      if math.floor(times[j] / slot) == math.floor(granted_at / slot) then
        amounts[j] = math.max(0, amounts[j] + by)
      end
      break
    end
  end
else
  local last = times[#times]
  if last and (now <= last or math.floor(last / slot) == math.floor(now / slot)) then
    times[#times] = math.max(last, now)
    amounts[#times] = amounts[#times] + by
  else
    times[#times + 1] = now
    amounts[#times] = by
  end
end
if #times > 0 or #state[1] > 0 then
  -- A window of requests that is longer has set a longer time to live.
  local left = redis.call('PTTL', KEYS[1])
  redis.call('SET', KEYS[1], cmsgpack.pack(state), 'PX', math.max(left, math.ceil(window * 1000) + 1000))
end
return 1
