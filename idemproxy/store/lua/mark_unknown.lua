-- mark_unknown(channel, fence, owner, fingerprint, route, claimed_at, since, status, kept, answer, back_fence, back_owner): say
-- that only the upstream knows; keep its answer (an error) when there was one (core.transition.mark_unknown).
--
-- KEYS  1 record: reads v, phase, fence, owner, watched; writes phase, fence, owner, settled_at, status; deletes watched; writes
--         every field of a lost record; never expires
--       2 answer: writes it, never to expire, or deletes it
-- ARGV  1 the channel of settlements
--       2 fence, 3 owner, 4 fingerprint, 5 route, 6 claimed_at: the hold
--       7 since when the outcome is unknown, or '' for now
--       8 status, or ''
--       9 '1' when the answer is kept, or ''
--       10 answer
--       11 fence, 12 owner: of the hold that the record is given back to, or ''
-- Gives 'written', 'rewritten' or 'stale'.

local channel, fence, owner, fingerprint, route, claimed_at, since, status, kept, answer, back_fence, back_owner
    = unpack(ARGV)
local record = load(HOLDING)

if record and (record.fence ~= fence or record.owner ~= owner or (record.phase ~= 'in_flight' and record.phase ~= 'unknown')) then
  return 'stale'
end

-- HDEL comes first, also where it deletes nothing: a script that has written may go on where memory is full (see complete.lua).
redis.call('HDEL', KEYS[1], 'watched')
if kept == '1' then
  redis.call('SET', KEYS[2], answer)
else
  redis.call('DEL', KEYS[2])
end
if not record then
  restore(fence, owner, fingerprint, route, claimed_at)
end
redis.call('HSET', KEYS[1], 'phase', 'unknown', 'settled_at', since ~= '' and since or digits(now()),
           'status', status)
if back_fence ~= '' then
  redis.call('HSET', KEYS[1], 'fence', back_fence, 'owner', back_owner)
end
redis.call('PERSIST', KEYS[1])
return settled(record, channel)
