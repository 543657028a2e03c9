"""What must happen at once in Redis, as Lua. Every script touches the keys of one hash tag only.

Each may be run twice for one request, when the answer to the first was lost: a run and a lease know the token they were
made with, what is swapped the nonce of who swapped it, frames have numbers and records revisions.

Times are the server's, or `ARGV[1]` when that is given (tests move it). The hash of a run has:
`born` `fingerprint` `worker` `epoch` `token` (of the lease) `record` `messages` `result` `rev` (of the record) `stop`
(reason) `first` `last` `bytes` (of the log) `over` `gone` (when it is forgotten).
"""

from __future__ import annotations

from gateway.stores.redis_script import FIELDS, SOURCES, Argument, Command, Script

__all__ = [
    "APPEND",
    "ASK",
    "CLOSE_NOTES",
    "CREATE",
    "DISCARD",
    "DROP_WORKER",
    "FIELDS",
    "GUARD",
    "INDEX",
    "LIVES",
    "NOTES",
    "PAGE",
    "RENEW",
    "SOURCES",
    "STOP",
    "SWAP",
    "SWAP_TICKET",
    "TAKE_OVER",
    "UNGUARD",
    "UNINDEX",
    "WATCH",
    "Argument",
    "Command",
    "Script",
]

# Takes the oldest entries out until the log is within its limits; the entry with the number `keep` stays.
TRIM = """
local function trim(first, last, bytes, keep, most_events, most_bytes)
  local trimmed = 0
  while bytes > most_bytes or last - first + 1 > most_events do
    local entry = redis.call('XRANGE', KEYS[2], string.format('%d-0', first), '+', 'COUNT', 1)[1]
    local number = entry and tonumber(string.match(entry[1], '%d+'))
    if not number or number == keep then break end
    bytes = bytes - #entry[2][2]
    first = number + 1
    trimmed = 1
  end
  if trimmed == 1 then redis.call('XTRIM', KEYS[2], 'MINID', '=', string.format('%d-0', first)) end
  return first, bytes, trimmed
end
"""

# KEYS: all of the run. ARGV: now, fingerprint, worker, token, then the fields of the record.
# Answers 0: created; 1: is there; 2: is there and came from another request; with FIELDS after 1.
CREATE = Script(
    """
local fingerprint, token, gone = get('fingerprint', 'token', 'gone')
if gone and tonumber(gone) <= now() then
  redis.call('DEL', unpack(KEYS))
  fingerprint = false
end
if fingerprint then
  if token == ARGV[4] then return {0} end
  if fingerprint ~= ARGV[2] then return {2} end
  return {1, fields()}
end
redis.call('HSET', KEYS[1], 'fingerprint', ARGV[2], 'worker', ARGV[3], 'token', ARGV[4], 'born', ARGV[4],
  'epoch', '1', 'rev', '0', 'first', '1', 'last', '0', 'bytes', '0', unpack(ARGV, 5))
return {0}
"""
)

# KEYS: all of the run. ARGV: now, epoch, and the token of the lease where it is known. A run that has events, or
# another lease, stays. Answers its record, or nothing.
DISCARD = Script(
    """
local epoch, last, token, record = get('epoch', 'last', 'token', 'record')
if epoch ~= ARGV[2] or last ~= '0' or (ARGV[3] and ARGV[3] ~= token) then return false end
redis.call('DEL', unpack(KEYS))
return record
"""
)

# KEYS: all of the run. ARGV: now, epoch, revision of the record (0: none), most events, most bytes, seconds that the
# run is kept (when the record says that it is over), reason of a Stop, whether it is refused when there is a Stop that
# the record does not know, how many fields the record has, these, and then the entries: first, last, frames. Answers
# {1, last, whether the oldest left}, {-1}: no such run, {-2}: fenced, {-3, last}: a gap, {-4}: it is over, {-5}:
# refused.
# An entry's id is `<last>-<last - first>`: a cursor finds the entry that has the next event, however many it has. The
# end is an entry, too, so that who waits for events hears of it.
APPEND = Script(
    TRIM
    + """
local epoch, first, last, bytes, rev, over, stop = get('epoch', 'first', 'last', 'bytes', 'rev', 'over', 'stop')
if not epoch then return {-1} end
if epoch ~= ARGV[2] then return {-2} end
if ARGV[8] == '1' and stop and stop ~= ARGV[7] and not over then return {-5} end
first, last, bytes = tonumber(first), tonumber(last), tonumber(bytes)
local fields = 10 + tonumber(ARGV[9])
local at = fields
while at <= #ARGV and tonumber(ARGV[at + 1]) <= last do at = at + 3 end
if at <= #ARGV then
  if tonumber(ARGV[at]) ~= last + 1 then return {-3, last} end
  if over then return {-4} end
end
local trimmed = 0
if at <= #ARGV then
  while at <= #ARGV do
    last = tonumber(ARGV[at + 1])
    redis.call('XADD', KEYS[2], string.format('%d-%d', last, last - tonumber(ARGV[at])), 'd', ARGV[at + 2])
    bytes = bytes + #ARGV[at + 2]
    at = at + 3
  end
  first, bytes, trimmed = trim(first, last, bytes, last, tonumber(ARGV[4]), tonumber(ARGV[5]))
  redis.call('HSET', KEYS[1], 'first', string.format('%d', first), 'last', string.format('%d', last),
    'bytes', string.format('%d', bytes))
end
if tonumber(ARGV[3]) > tonumber(rev) then
  redis.call('HSET', KEYS[1], 'rev', ARGV[3], unpack(ARGV, 10, fields - 1))
  if ARGV[7] ~= '' then redis.call('HSETNX', KEYS[1], 'stop', ARGV[7]) end
  if ARGV[6] ~= '' then
    if not over then redis.call('XADD', KEYS[2], string.format('%d-0', last + 1), 'e', '1') end
    redis.call('HSET', KEYS[1], 'over', '1', 'gone', string.format('%.3f', now() + tonumber(ARGV[6])))
    for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ms(tonumber(ARGV[6]))) end
  end
end
return {1, last, trimmed}
"""
)

# Large batches do not pass through Lua, which copies them twice: they are plain `XADD NOMKSTREAM` in a transaction,
# between these two. What must not be added is not, because the log is put aside for that moment.
# KEYS: all of the run. ARGV: now, epoch, most events, most bytes, then of the batch: first, last, bytes. Answers as
# `APPEND` does. No record goes this way, and not the first batch of a run, which makes the stream.
GUARD = Script(
    TRIM
    + """
local epoch, first, last, bytes, over = get('epoch', 'first', 'last', 'bytes', 'over')
local function aside(answer)
  if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('RENAME', KEYS[2], KEYS[5]) end
  return answer
end
if not epoch then return aside({-1}) end
if epoch ~= ARGV[2] then return aside({-2}) end
local a, z = tonumber(ARGV[5]), tonumber(ARGV[6])
first, last, bytes = tonumber(first), tonumber(last), tonumber(bytes)
if z <= last then return aside({1, last, 0}) end
if a ~= last + 1 then return aside({-3, last}) end
if over then return aside({-4}) end
-- Memory may run out just here, and then nothing may be added either.
local done = redis.pcall('HSET', KEYS[1], 'last', string.format('%d', z))
if type(done) == 'table' and done.err then return aside(done) end
local trimmed
first, bytes, trimmed = trim(first, z, bytes + tonumber(ARGV[7]), -1, tonumber(ARGV[3]), tonumber(ARGV[4]))
redis.call('HSET', KEYS[1], 'first', string.format('%d', first), 'bytes', string.format('%d', bytes))
return {1, z, trimmed}
"""
)

UNGUARD = Script(
    """
if redis.call('EXISTS', KEYS[5]) == 1 then redis.call('RENAME', KEYS[5], KEYS[2]) end
return 1
"""
)

# KEYS: the run's log. ARGV: now, the number to read from, bytes wanted. Answers {first, last, frames} of the entry that
# has this number and of those after it; nothing when there are none.
PAGE = Script(
    """
local first, last, size, frames = nil, nil, 0, {}
local from = ARGV[2] .. '-0'
while size < tonumber(ARGV[3]) do
  local entries = redis.call('XRANGE', KEYS[1], from, '+', 'COUNT', 16)
  for _, entry in ipairs(entries) do
    if entry[2][1] == 'd' then
      local number, span = string.match(entry[1], '(%d+)-(%d+)')
      last = tonumber(number)
      first = first or last - tonumber(span)
      size = size + #entry[2][2]
      frames[#frames + 1] = entry[2][2]
    end
  end
  if #entries < 16 then break end
  from = string.format('%d-0', last + 1)
end
if not first then return false end
return {first, last, table.concat(frames)}
"""
)

# KEYS: the owner's index, the thread's. ARGV: now, run id, seconds they are kept, whether to put a known id in front.
# A score is the time, but larger than all before. Answers whether it was there, and a few ids to look after: runs are
# forgotten by Redis, which tells no index.
INDEX = Script(
    """
local was = 0
for index, key in ipairs(KEYS) do
  local known = redis.call('ZSCORE', key, ARGV[2])
  if known and index == 1 then was = 1 end
  if not known or ARGV[4] == '1' then
    local score = math.floor(now() * 1000000)
    local newest = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2]
    if newest and tonumber(newest) >= score then score = tonumber(newest) + 1 end
    redis.call('ZADD', key, string.format('%.0f', score), ARGV[2])
  end
  redis.call('PEXPIRE', key, ms(tonumber(ARGV[3])))
end
local some = {}
if redis.call('ZCARD', KEYS[1]) > 64 then some = redis.call('ZRANDMEMBER', KEYS[1], 2) end
return {was, some}
"""
)

# KEYS: indexes of one owner. ARGV: now, then ids of runs that are not there. One that was only just put in is about to
# be made.
UNINDEX = Script(
    """
local horizon = (now() - 60) * 1000000
for _, key in ipairs(KEYS) do
  for at = 2, #ARGV do
    local score = redis.call('ZSCORE', key, ARGV[at])
    if score and tonumber(score) < horizon then redis.call('ZREM', key, ARGV[at]) end
  end
end
return 1
"""
)

# KEYS: the run's hash and its Stop requests. ARGV: now, nonce, the request, reason when it is of the whole run.
STOP = Script(
    """
local record, over, gone = get('record', 'over', 'gone')
if not record or (gone and tonumber(gone) <= now()) then return false end
if not over then
  for _, known in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    if string.sub(known, 1, #ARGV[2]) == ARGV[2] then over = '1' end
  end
end
if not over then
  redis.call('RPUSH', KEYS[2], ARGV[2] .. ARGV[3])
  if ARGV[4] ~= '' then redis.call('HSETNX', KEYS[1], 'stop', ARGV[4]) end
end
local found = fields()
found[#found + 1] = over or '0'
return found
"""
)

# KEYS: the run's hash. ARGV: now, worker, token, and who must hold it (or nothing): worker, epoch.
TAKE_OVER = Script(
    """
local epoch, last, over, token, worker = get('epoch', 'last', 'over', 'token', 'worker')
if not epoch or over then return false end
if token == ARGV[3] then return {epoch, last, worker} end
if ARGV[4] and (worker ~= ARGV[4] or epoch ~= ARGV[5]) then return false end
epoch = string.format('%d', tonumber(epoch) + 1)
redis.call('HSET', KEYS[1], 'epoch', epoch, 'worker', ARGV[2], 'token', ARGV[3], 'rev', '0')
return {epoch, last, worker}
"""
)

# KEYS: the run's hash and the workers that watch it. ARGV: now, worker, whether it has viewers. Answers the run's own
# worker, or nothing.
WATCH = Script(
    """
local worker, over = get('worker', 'over')
if not worker or over then return false end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
return worker
"""
)

# KEYS: the workers. ARGV: now, worker, seconds it lives without another renewal.
RENEW = Script(
    """
redis.call('ZADD', KEYS[1], string.format('%.3f', now() + tonumber(ARGV[3])), ARGV[2])
return 1
"""
)

# KEYS: the workers. ARGV: now. Answers {those that live, those that do not}.
LIVES = Script(
    """
local moment = string.format('%.3f', now())
return {redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. moment, '+inf'),
  redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', moment)}
"""
)

# KEYS: the workers. ARGV: now, a worker that is dead and holds nothing any more.
DROP_WORKER = Script(
    """
local score = redis.call('ZSCORE', KEYS[1], ARGV[2])
if score and tonumber(score) <= now() then redis.call('ZREM', KEYS[1], ARGV[2]) end
return 1
"""
)

# KEYS: the run's hash and its questions. ARGV: now, epoch, id, question. A value has its place (8 bytes), the nonce of
# the last swap (32), and the question. Answers 1, {-1}: no such run, {-2}: fenced.
ASK = Script(
    """
local epoch, over = get('epoch', 'over')
if not epoch then return -1 end
if epoch ~= ARGV[2] then return -2 end
redis.call('HSETNX', KEYS[2], ARGV[3],
  string.format('%08d', redis.call('HLEN', KEYS[2])) .. string.rep('0', 32) .. ARGV[4])
if over then redis.call('PEXPIRE', KEYS[2], redis.call('PTTL', KEYS[1])) end
return 1
"""
)

# KEYS: the run's hash and its questions. ARGV: now, nonce, the record as it was and as it shall be (or twice nothing),
# then id, question as it was, as it shall be. Answers the worker, or nothing when one is not as it was.
SWAP = Script(
    """
local record, worker = get('record', 'worker')
if not record then return false end
local mine, same = #ARGV > 4, ARGV[3] == '' or ARGV[3] == record
local found = {}
for at = 5, #ARGV, 3 do
  local value = redis.call('HGET', KEYS[2], ARGV[at])
  if not value then return false end
  found[at] = value
  mine = mine and string.sub(value, 9, 40) == ARGV[2]
  same = same and string.sub(value, 41) == ARGV[at + 1]
end
if mine then return worker end
if not same then return false end
for at = 5, #ARGV, 3 do
  redis.call('HSET', KEYS[2], ARGV[at], string.sub(found[at], 1, 8) .. ARGV[2] .. ARGV[at + 2])
end
if ARGV[4] ~= '' then redis.call('HSET', KEYS[1], 'record', ARGV[4]) end
return worker
"""
)

# KEYS: the notes of a thread. ARGV: now, seconds they are kept, who takes them (or nothing); to add one: its run, when
# it ended, the note. Answers note and who has taken it, for each.
NOTES = Script(
    """
if ARGV[4] then
  redis.call('HSETNX', KEYS[1], 'n' .. ARGV[4], ARGV[5] .. ' ' .. ARGV[6])
  redis.call('PEXPIRE', KEYS[1], ms(tonumber(ARGV[2]) + 60))
end
local taker = ARGV[3]
if taker ~= '' and redis.call('HEXISTS', KEYS[1], 'c' .. taker) == 1 then taker = '' end
local found, horizon = {}, now() - tonumber(ARGV[2])
local all = redis.call('HGETALL', KEYS[1])
for at = 1, #all, 2 do
  local kind, id = string.sub(all[at], 1, 1), string.sub(all[at], 2)
  if kind == 'n' then
    local space = string.find(all[at + 1], ' ', 1, true)
    if tonumber(string.sub(all[at + 1], 1, space - 1)) < horizon then
      redis.call('HDEL', KEYS[1], 'n' .. id, 't' .. id)
    else
      if taker ~= '' then redis.call('HSETNX', KEYS[1], 't' .. id, taker) end
      found[#found + 1] = string.sub(all[at + 1], space + 1)
      found[#found + 1] = redis.call('HGET', KEYS[1], 't' .. id) or ''
    end
  end
end
return found
"""
)

# KEYS: the notes of a thread. ARGV: now, seconds they are kept, a run that takes no more of them.
CLOSE_NOTES = Script(
    """
redis.call('HSET', KEYS[1], 'c' .. ARGV[3], 1)
redis.call('PEXPIRE', KEYS[1], ms(tonumber(ARGV[2]) + 60))
return 1
"""
)

# KEYS: the ticket. ARGV: now, nonce, ticket as it was, as it shall be, seconds it is kept. A value has the nonce of the
# last swap (32 bytes), the run's `born` (32), and the ticket.
SWAP_TICKET = Script(
    """
local value = redis.call('GET', KEYS[1])
if not value then return 0 end
if string.sub(value, 1, 32) == ARGV[2] then return 1 end
if string.sub(value, 65) ~= ARGV[3] then return 0 end
redis.call('SET', KEYS[1], ARGV[2] .. string.sub(value, 33, 64) .. ARGV[4], 'PX', ms(tonumber(ARGV[5])))
return 1
"""
)
