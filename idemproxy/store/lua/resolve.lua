-- resolve(channel, fence, who, why, audit_kept, verb, status, retention, expired_mark, source, kept, answer): let a person decide
-- an unknown outcome, and note it in the audit trail (core.transition.resolve).
--
-- KEYS  1 record: reads every field; writes fence, owner, phase, settled_at, expires_at, forget_at, status, source; deletes
--         watched; expires at forget_at. Or is deleted: not executed
--       2 answer: writes it, to expire at expires_at, or deletes it
--       3 audit: gains an entry, and expires audit_kept from now
-- ARGV  1 the channel of settlements
--       2 the fence that the person saw
--       3 who, 4 why
--       5 for how many microseconds from now the audit trail is kept
--       6 'resolve_completed' or 'resolve_not_executed'; what follows counts only for the first
--       7 status
--       8 retention, 9 expired_mark: durations in microseconds
--       10 source, '' for an answer to what was forwarded
--       11 '1' when there is an answer, or ''
--       12 answer
-- Gives 'done', 'absent', 'stale' or 'wrong_phase'; nothing is written but by the first.

local channel, fence, who, why, audit_kept, verb, status, retention, expired_mark, source, kept, answer = unpack(ARGV)
local at = now()
local record = aged(load(RECORD), at)

if not record then
  return 'absent'
end
if record.fence ~= fence then
  return 'stale'
end
if record.phase ~= 'unknown' then
  return 'wrong_phase'
end

-- HDEL comes first, also where it deletes nothing: a script that has written may go on where memory is full (see complete.lua).
redis.call('HDEL', KEYS[1], 'watched')
note(record, verb, who, why, at, audit_kept)
if verb == 'resolve_completed' then
  redis.call('HSET', KEYS[1], 'fence', digits(math.max(at, tonumber(fence) + 1)), 'owner', '')
  fulfil(at, status, retention, expired_mark, source, kept, answer)
else
  redis.call('DEL', KEYS[1], KEYS[2])
end
settled(record, channel)
return 'done'
