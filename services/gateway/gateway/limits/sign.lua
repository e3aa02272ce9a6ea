-- Gives a sign of life in the server's time, forgets gateways that gave none for long, and returns how many are alive.
-- KEYS: the gateways by their last sign of life. ARGV: this gateway, seconds a gateway lives without a sign.
local now = tonumber(redis.call('TIME')[1])
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. (now - tonumber(ARGV[2])))
return redis.call('ZCARD', KEYS[1])
