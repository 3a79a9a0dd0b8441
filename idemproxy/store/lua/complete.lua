-- complete(channel, fence, owner, fingerprint, route, claimed_at, status, retention, expired_mark, source, kept, answer): store
-- what was answered; also settles an unknown record, and writes a lost one anew (core.transition.complete).
--
-- KEYS  1 record: reads v, phase, fence, owner, watched; writes phase, settled_at, expires_at, forget_at, status, source;
--         deletes watched; writes every field of a lost record; expires at forget_at
--       2 answer: writes it, to expire at expires_at, or deletes it
-- ARGV  1 the channel of settlements
--       2 fence, 3 owner, 4 fingerprint, 5 route, 6 claimed_at: the hold
--       7 status
--       8 retention, 9 expired_mark: durations in microseconds
--       10 source, '' for an answer to what was forwarded
--       11 '1' when the answer is kept, or ''
--       12 answer
-- Gives 'written', 'rewritten' or 'stale'.

local channel, fence, owner, fingerprint, route, claimed_at, status, retention, expired_mark, source, kept, answer
  = unpack(ARGV)
local record = load(HOLDING)

if record and (record.fence ~= fence or record.owner ~= owner) then
  return 'stale'
end

-- HDEL comes first, also where it deletes nothing: a script that has written may go on where memory is full. Claims are refused
-- then, but what was answered is a fact, and whatever is in flight is bounded.
redis.call('HDEL', KEYS[1], 'watched')
if record and (record.phase == 'completed' or record.phase == 'expired') then
  -- The same completion again, its first reply lost, or not confirmed: only what this connection writes can be confirmed to it.
  redis.call('HSET', KEYS[1], 'v', VERSION)
  return 'written'
end
if not record then
  restore(fence, owner, fingerprint, route, claimed_at)
end
fulfil(now(), status, retention, expired_mark, source, kept, answer)
return settled(record, channel)
