-- check(): a write such as a claim's, on a key of its own, which shows that this server takes them from this user.
--
-- KEYS  1 the key: reads and writes v and checked_at; expires after a minute
-- Gives 'written'.

local at = now()
redis.call('HMGET', KEYS[1], 'v', 'checked_at')
redis.call('HSET', KEYS[1], 'v', VERSION, 'checked_at', digits(at))
redis.call('PEXPIREAT', KEYS[1], milliseconds(at + 60000000))
return 'written'
