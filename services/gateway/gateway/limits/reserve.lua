-- Decides on a claim as MemoryLedger.decide does, in the server's time. The state: {times, amounts} of requests, then tokens.
-- KEYS: the client's state, its streams by gateway, the gateways by their last sign of life.
-- ARGV: this gateway, seconds a gateway lives without a sign; requests and their window, tokens and theirs (0: without
-- limit), tokens wanted, streams (0: without limit), slots of a window, tolerance.
-- Returns: granted, now, tokens reserved, streams are out; then of requests and of tokens: what is left, reset, wait.
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local gateway, lifetime = ARGV[1], tonumber(ARGV[2])
local limits = { tonumber(ARGV[3]), tonumber(ARGV[5]) }
local windows = { tonumber(ARGV[4]), tonumber(ARGV[6]) }
local wanted = { 1, math.min(tonumber(ARGV[7]), limits[2]) }
local most_streams, slots, tolerance = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])

local raw = redis.call('GET', KEYS[1])
local state = raw and cmsgpack.unpack(raw) or { {}, {}, {}, {} }

local streams = 0
local counts = redis.call('HGETALL', KEYS[2])
for i = 1, #counts, 2 do
  local seen = redis.call('ZSCORE', KEYS[3], counts[i])
  if seen and tonumber(seen) > now - lifetime then
    streams = streams + tonumber(counts[i + 1])
  else
    redis.call('HDEL', KEYS[2], counts[i]) -- that gateway is gone, and its streams with it
  end
end
local streams_are_out = most_streams > 0 and streams >= most_streams

local granted, set_back, longest = not streams_are_out, false, 0
local left, reset, wait = { 0, 0 }, { 0, 0 }, { 0, 0 }
for i = 1, 2 do
  if limits[i] > 0 then
    local times, amounts = {}, {}
    local used = 0
    for j, at in ipairs(state[2 * i - 1]) do
      if at > now - windows[i] + tolerance then
        if at > now then
          -- What a clock that was set back has left in the future would stay in the window for as long.
          at, set_back = now, true
        end
        times[#times + 1] = at
        amounts[#amounts + 1] = state[2 * i][j]
        used = used + state[2 * i][j]
      end
    end
    state[2 * i - 1], state[2 * i] = times, amounts
    longest = math.max(longest, windows[i])
    left[i] = limits[i] - used
    reset[i] = #times > 0 and math.max(0, times[#times] + windows[i] - now) or 0
    local excess = used + wanted[i] - limits[i]
    local j = 0
    while excess > 0 do
      j = j + 1
      excess = excess - amounts[j]
      wait[i] = times[j] + windows[i] - now
    end
    granted = granted and wait[i] == 0
  end
end

if granted then
  for i = 1, 2 do
    if limits[i] > 0 then
      local times, amounts = state[2 * i - 1], state[2 * i]
      local last = times[#times]
      local slot = windows[i] / slots
      if last and (now <= last or math.floor(last / slot) == math.floor(now / slot)) then
        times[#times] = math.max(last, now)
        amounts[#times] = amounts[#times] + wanted[i]
      else
        times[#times + 1] = now
        amounts[#times] = wanted[i]
      end
      left[i] = left[i] - wanted[i]
      reset[i] = windows[i]
    end
  end
  redis.call('HINCRBY', KEYS[2], gateway, 1)
  redis.call('EXPIRE', KEYS[2], 86400)
end
if longest > 0 and (granted or set_back) then
  redis.call('SET', KEYS[1], cmsgpack.pack(state), 'PX', math.ceil(longest * 1000) + 1000)
end

local function text(number) return string.format('%.6f', number) end
return {
  granted and 1 or 0, text(now), limits[2] > 0 and wanted[2] or 0, streams_are_out and 1 or 0,
  math.max(0, left[1]), text(reset[1]), text(wait[1]), math.max(0, left[2]), text(reset[2]), text(wait[2]),
}
