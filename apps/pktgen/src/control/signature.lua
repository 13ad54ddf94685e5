-- Shows the signatures of linerate's test frames in Wireshark and tshark:
--
--   linerate pktgen --print dissector > ~/.local/lib/wireshark/plugins/linerate.lua
--   tshark -X lua_script:linerate.lua -r capture.pcap -Y 'linerate.stream == 3'
--
-- A signature is the last 18 bytes of a frame, little endian: a check of 16 bits, a sequence number of
-- 48, the session, the low 48 bits of the sender's clock in ticks, and the stream. The check makes the
-- one's complement sum of the nine words and 0x6c72 zero (RFC 1071), so foreign bytes rarely look so.

local signature = Proto("linerate", "linerate test frame")

local fields = {
    check = ProtoField.uint16("linerate.check", "Check", base.HEX),
    sequence = ProtoField.uint64("linerate.sequence", "Sequence number", base.DEC),
    session = ProtoField.uint16("linerate.session", "Session", base.DEC),
    stamp = ProtoField.uint64("linerate.stamp", "Intended send time in ticks", base.DEC),
    stream = ProtoField.uint16("linerate.stream", "Stream", base.DEC),
}
signature.fields = { fields.check, fields.sequence, fields.session, fields.stamp, fields.stream }

local BYTES = 18
local MAGIC = 0x6c72

local function is_signed(tail)
    local sum = MAGIC
    for at = 0, BYTES - 2, 2 do
        sum = sum + tail(at, 2):le_uint()
    end
    while sum > 0xffff do
        sum = (sum % 0x10000) + math.floor(sum / 0x10000)
    end
    return sum == 0xffff
end

-- A post-dissector sees the whole frame, whatever headers are in it.
function signature.dissector(frame, info, tree)
    -- Of a frame that was cut when it was captured, the end is missing.
    if frame:len() < BYTES or frame:reported_len() ~= frame:len() then
        return 0
    end
    local tail = frame(frame:len() - BYTES, BYTES)
    if not is_signed(tail) then
        return 0
    end
    local session, stream = tail(8, 2):le_uint(), tail(16, 2):le_uint()
    local sequence = tail(2, 6):le_uint64()
    local item = tree:add(signature, tail)
    item:append_text(string.format(
        ", session %d, stream %d, sequence number %s", session, stream, tostring(sequence)))
    item:add_le(fields.check, tail(0, 2))
    item:add(fields.sequence, tail(2, 6), sequence)
    item:add_le(fields.session, tail(8, 2))
    item:add(fields.stamp, tail(10, 6), tail(10, 6):le_uint64())
    item:add_le(fields.stream, tail(16, 2))
    return BYTES
end

register_postdissector(signature)
