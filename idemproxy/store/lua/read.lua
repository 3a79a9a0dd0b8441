-- read(whole): the record as it stands now, aged (core.transition.aged). Writes nothing, so that it works where memory is full too.
--
-- KEYS  1 record: reads every field
--       2 answer: reads it
-- ARGV  1 '1' to be told the answer too, or ''
-- Gives the record as `told`, or nil.

local record = aged(load(RECORD), now())
return record and told(record, ARGV[1] == '1')
