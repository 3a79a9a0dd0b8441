-- forget(channel, fence, who, why, audit_kept): let a person remove a record that is not in flight, and note it in the audit
-- trail (core.transition.forget).
--
-- KEYS  1 record: reads every field; is deleted
--       2 answer: is deleted
--       3 audit: gains an entry, and expires audit_kept from now
-- ARGV  1 the channel of settlements
--       2 the fence that the person saw
--       3 who, 4 why
--       5 for how many microseconds from now the audit trail is kept
-- Gives 'done', 'absent', 'stale' or 'wrong_phase'; nothing is written but by the first.

local channel, fence, who, why, audit_kept = unpack(ARGV)
local at = now()
local record = aged(load(RECORD), at)

if not record then
  return 'absent'
end
if record.fence ~= fence then
  return 'stale'
end
if record.phase == 'in_flight' then
  return 'wrong_phase'
end

-- HDEL comes first, also where it deletes nothing: a script that has written may go on where memory is full (see complete.lua).
redis.call('HDEL', KEYS[1], 'watched')
note(record, 'forget', who, why, at, audit_kept)
redis.call('DEL', KEYS[1], KEYS[2])
settled(record, channel)
return 'done'
