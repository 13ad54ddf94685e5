//! The XDP program, assembled here: no compiler, no object file.
//!
//! Frames that pass the filter go to the AF_XDP socket of their queue, if there is one; all others
//! go on to the kernel. The filter's own operations are translated one by one, each test with the
//! bounds checks that the verifier asks for (RFC 9669 describes the instructions).

use linerate_wire::filter::{Filter, Op, Side, Test};
use linerate_wire::{EtherType, protocol};
use std::net::IpAddr;

/// One instruction as the kernel takes it: operation, registers (source in the upper half),
/// jump distance or memory offset, immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Insn {
    code: u8,
    registers: u8,
    offset: i16,
    imm: i32,
}

/// The action for a frame that passes.
#[derive(Clone, Copy)]
pub(super) enum Verdict {
    /// It goes to the queue's socket in the map with this descriptor.
    ToSocket { map: i32 },
    /// It is dropped: for sinks, and for tests of the filter in the kernel.
    #[cfg(test)]
    Drop,
}

const XDP_PASS: i32 = 2;
const HELPER_REDIRECT_MAP: i32 = 51;
/// As a source register of a 64-bit load: the immediate is a map's descriptor.
const PSEUDO_MAP_FD: u8 = 1;

// Registers: 0 the verdict, 1 to 3 free, 6 the truth value, 7 the frame's start, 8 its end, 9 the
// context.
const TRUTH: u8 = 6;
const DATA: u8 = 7;
const END: u8 = 8;
const CONTEXT: u8 = 9;

/// Jumps with 16 bits must reach the end.
const MAX_INSNS: usize = 30_000;
/// More tags than any frame has.
const MAX_TAGS: usize = 8;

/// A place in the program that jumps lead to.
#[derive(Clone, Copy)]
struct Label(usize);

struct Assembler {
    code: Vec<Insn>,
    labels: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
    /// Where frames go that end before a byte that is asked for, and those that do not pass.
    pass: Label,
}

/// Translates a filter.
///
/// # Errors
/// What of it a program in the kernel cannot do.
pub(super) fn assemble(filter: &Filter, verdict: Verdict) -> Result<Vec<Insn>, String> {
    let mut asm = Assembler {
        code: Vec::new(),
        labels: Vec::new(),
        jumps: Vec::new(),
        pass: Label(0),
    };
    asm.pass = asm.label();
    asm.insn(0xbf, CONTEXT, 1, 0, 0); // context, an argument, outlives calls in r9
    let program = filter.program();
    if !program.is_empty() {
        asm.insn(0x61, DATA, 1, 0, 0); // xdp_md.data
        asm.insn(0x61, END, 1, 4, 0); // xdp_md.data_end
        asm.set(TRUTH, 1);
        asm.filter(program)?;
        asm.jump_if_equal(TRUTH, 0, asm.pass);
    }
    match verdict {
        Verdict::ToSocket { map } => {
            asm.insn(0x61, 2, CONTEXT, 16, 0); // xdp_md.rx_queue_index
            asm.insn(0x18, 1, PSEUDO_MAP_FD, 0, map);
            asm.insn(0, 0, 0, 0, 0); // the upper half of the 64-bit load
            asm.set(3, XDP_PASS); // where the queue has no socket
            asm.insn(0x85, 0, 0, 0, HELPER_REDIRECT_MAP);
        }
        #[cfg(test)]
        Verdict::Drop => asm.set(0, 1),
    }
    asm.insn(0x95, 0, 0, 0, 0); // exit
    if !program.is_empty() {
        asm.place(asm.pass);
        asm.set(0, XDP_PASS);
        asm.insn(0x95, 0, 0, 0, 0);
    }
    asm.finish()
}

impl Assembler {
    fn insn(&mut self, code: u8, dst: u8, src: u8, offset: i16, imm: i32) {
        self.code.push(Insn {
            code,
            registers: dst | src << 4,
            offset,
            imm,
        });
    }

    fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    fn place(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    fn jump(&mut self, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.insn(0x05, 0, 0, 0, 0);
    }

    /// Compares 32 bits.
    fn jump_if_equal(&mut self, register: u8, value: u32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.insn(0x16, register, 0, 0, value as i32);
    }

    /// Compares 32 bits.
    fn jump_unless_equal(&mut self, register: u8, value: u32, to: Label) {
        self.jumps.push((self.code.len(), to));
        self.insn(0x56, register, 0, 0, value as i32);
    }

    fn set(&mut self, register: u8, value: i32) {
        self.insn(0xb7, register, 0, 0, value);
    }

    /// Loads `bytes` (1, 2 or 4) at a distance from `base` into r2, in the frame's byte order.
    /// A frame that ends before goes to the kernel.
    fn load(&mut self, base: u8, at: usize, bytes: usize) {
        self.insn(0xbf, 1, base, 0, 0);
        self.insn(0x07, 1, 0, 0, (at + bytes) as i32);
        self.jumps.push((self.code.len(), self.pass));
        self.insn(0x2d, 1, END, 0, 0); // r1 > end
        let code = match bytes {
            1 => 0x71,
            2 => 0x69,
            _ => 0x61,
        };
        self.insn(code, 2, base, at as i16, 0);
    }

    /// Goes to `other` unless the frame's bytes under the mask are these.
    fn expect(&mut self, base: u8, at: usize, bytes: &[u8], mask: &[u8], other: Label) {
        let mut done = 0;
        while done < bytes.len() {
            let size = match bytes.len() - done {
                4.. => 4,
                2..4 => 2,
                _ => 1,
            };
            let number = |from: &[u8]| {
                let mut word = [0; 4];
                word[..size].copy_from_slice(&from[done..done + size]);
                u32::from_le_bytes(word)
            };
            let (value, mask) = (number(bytes), number(mask));
            self.load(base, at + done, size);
            if mask != number(&[0xff; 16]) {
                self.insn(0x54, 2, 0, 0, mask as i32); // 32-bit and
            }
            self.jump_unless_equal(2, value & mask, other);
            done += size;
        }
    }

    fn filter(&mut self, program: &[Op]) -> Result<(), String> {
        let labels: Vec<Label> = (0..=program.len()).map(|_| self.label()).collect();
        for (op, label) in program.iter().zip(&labels) {
            self.place(*label);
            match op {
                Op::Test {
                    test: Test::PortRange { .. } | Test::Compare(_),
                    ..
                } => {
                    return Err(
                        "ranges of ports, lengths, groups and bytes are not compared in the \
                         kernel; name ports and addresses"
                            .into(),
                    );
                }
                Op::Test { test, tags } if *tags <= MAX_TAGS => self.truth_of(test, *tags),
                Op::Test { .. } => {
                    return Err(format!("it looks behind more than {MAX_TAGS} VLAN tags"));
                }
                Op::Not => self.insn(0xa7, TRUTH, 0, 0, 1), // xor
                Op::JumpIf { truth, to } => {
                    self.jump_if_equal(TRUTH, u32::from(*truth), labels[*to])
                }
            }
            if self.code.len() > MAX_INSNS {
                return Err(format!("it takes more than {MAX_INSNS} instructions"));
            }
        }
        self.place(labels[program.len()]);
        Ok(())
    }

    /// Sets the truth value to a test's answer.
    fn truth_of(&mut self, test: &Test, tags: usize) {
        let [no, end] = [self.label(), self.label()];
        self.test(test, 14 + 4 * tags, no);
        self.set(TRUTH, 1);
        self.jump(end);
        self.place(no);
        self.set(TRUTH, 0);
        self.place(end);
    }

    /// Falls through where the answer is yes.
    fn test(&mut self, test: &Test, l3: usize, no: Label) {
        match *test {
            Test::EtherType(wanted) => self.ethertype(l3, wanted, no),
            Test::Protocol { protocol, v4, v6 } => self.protocol(l3, protocol, v4, v6, no),
            Test::Net {
                side,
                address,
                bits,
                only,
            } => self.net(l3, side, address, bits, only, no),
            Test::Port {
                side,
                port,
                protocol,
            } => self.port(l3, side, port, protocol, no),
            Test::Vlan(id) => {
                let tagged = self.label();
                self.load(DATA, l3 - 2, 2);
                for ethertype in TAGS {
                    self.jump_if_equal(2, swapped(ethertype.0), tagged);
                }
                self.jump(no);
                self.place(tagged);
                if let Some(id) = id {
                    self.expect(DATA, l3, &id.to_be_bytes(), &[0x0f, 0xff], no);
                }
            }
            // Refused by `filter`.
            Test::PortRange { .. } | Test::Compare(_) => self.jump(no),
            Test::Ether { side, mac } => self.either(side, 6, 0, no, |asm, at, no| {
                asm.expect(DATA, at, &mac.0, &[0xff; 6], no);
            }),
        }
    }

    /// A test at the offset of the side, or of either: falls through on yes.
    fn either(
        &mut self,
        side: Side,
        src: usize,
        dst: usize,
        no: Label,
        test: impl Fn(&mut Self, usize, Label),
    ) {
        match side {
            Side::Src => test(self, src, no),
            Side::Dst => test(self, dst, no),
            Side::Either => {
                let [second, yes] = [self.label(), self.label()];
                test(self, src, second);
                self.jump(yes);
                self.place(second);
                test(self, dst, no);
                self.place(yes);
            }
        }
    }

    fn ethertype(&mut self, l3: usize, wanted: EtherType, no: Label) {
        self.load(DATA, l3 - 2, 2);
        self.jump_unless_equal(2, swapped(wanted.0), no);
    }

    fn protocol(&mut self, l3: usize, protocol: u8, v4: bool, v6: bool, no: Label) {
        let [not_v4, yes] = [self.label(), self.label()];
        if v4 {
            self.ethertype(l3, EtherType::IPV4, not_v4);
            self.expect(DATA, l3 + 9, &[protocol], &[0xff], no);
            self.jump(yes);
        }
        self.place(not_v4);
        if v6 {
            self.ethertype(l3, EtherType::IPV6, no);
            self.load(DATA, l3 + 6, 1);
            self.jump_if_equal(2, protocol.into(), yes);
            self.jump_unless_equal(2, protocol::FRAGMENT.into(), no);
            self.expect(DATA, l3 + 40, &[protocol], &[0xff], no);
        } else {
            self.jump(no);
        }
        self.place(yes);
    }

    fn net(
        &mut self,
        l3: usize,
        side: Side,
        address: IpAddr,
        bits: u8,
        only: Option<EtherType>,
        no: Label,
    ) {
        let mask = (u128::MAX)
            .checked_shl(128 - u32::from(bits))
            .unwrap_or(0)
            .to_be_bytes();
        let (bytes, layouts): (Vec<u8>, &[(EtherType, usize, usize)]) = match address {
            IpAddr::V4(v4) => (
                v4.octets().into(),
                &[
                    (EtherType::IPV4, 12, 16),
                    (EtherType::ARP, 14, 24),
                    (EtherType::RARP, 14, 24),
                ],
            ),
            IpAddr::V6(v6) => (v6.octets().into(), &[(EtherType::IPV6, 8, 24)]),
        };
        let yes = self.label();
        for &(ethertype, src, dst) in layouts
            .iter()
            .filter(|layout| only.is_none_or(|only| only == layout.0))
        {
            let other = self.label();
            self.ethertype(l3, ethertype, other);
            self.either(side, l3 + src, l3 + dst, no, |asm, at, no| {
                asm.expect_prefix(at, &bytes, &mask, no)
            });
            self.jump(yes);
            self.place(other);
        }
        self.jump(no);
        self.place(yes);
    }

    /// The whole address must be there, even for a prefix of no bits.
    fn expect_prefix(&mut self, at: usize, address: &[u8], mask: &[u8; 16], no: Label) {
        self.load(DATA, at + address.len() - 1, 1);
        self.expect(DATA, at, address, &mask[..address.len()], no);
    }

    fn port(&mut self, l3: usize, side: Side, port: u16, protocol: Option<u8>, no: Label) {
        let [not_v4, yes] = [self.label(), self.label()];
        self.ethertype(l3, EtherType::IPV4, not_v4);
        self.has_ports(l3 + 9, protocol, no);
        self.expect(DATA, l3 + 6, &[0, 0], &[0x1f, 0xff], no); // a first or only fragment
        self.load(DATA, l3, 1);
        self.insn(0x57, 2, 0, 0, 0x0f); // header length in words
        self.insn(0x67, 2, 0, 0, 2);
        self.insn(0xbf, 3, DATA, 0, 0);
        self.insn(0x0f, 3, 2, 0, 0);
        let wanted = port.to_be_bytes();
        self.either(side, l3, l3 + 2, no, |asm, at, no| {
            asm.expect(3, at, &wanted, &[0xff; 2], no)
        });
        self.jump(yes);
        self.place(not_v4);
        self.ethertype(l3, EtherType::IPV6, no);
        self.has_ports(l3 + 6, protocol, no);
        self.either(side, l3 + 40, l3 + 42, no, |asm, at, no| {
            asm.expect(DATA, at, &wanted, &[0xff; 2], no)
        });
        self.place(yes);
    }

    fn has_ports(&mut self, at: usize, wanted: Option<u8>, no: Label) {
        self.load(DATA, at, 1);
        let Some(wanted) = wanted else {
            let yes = self.label();
            self.jump_if_equal(2, protocol::TCP.into(), yes);
            self.jump_if_equal(2, protocol::UDP.into(), yes);
            self.jump_unless_equal(2, protocol::SCTP.into(), no);
            return self.place(yes);
        };
        self.jump_unless_equal(2, wanted.into(), no);
    }

    fn finish(mut self) -> Result<Vec<Insn>, String> {
        for (at, label) in self.jumps {
            let to = self.labels[label.0].expect("every label is placed by the one who made it");
            let distance = to as i64 - at as i64 - 1;
            self.code[at].offset =
                i16::try_from(distance).map_err(|_| "it is too long for jumps of 16 bits")?;
        }
        Ok(self.code)
    }
}

const TAGS: [EtherType; 3] = [
    EtherType::VLAN,
    EtherType::SERVICE_VLAN,
    EtherType::OLD_VLAN,
];

/// A 16-bit field as a load in this machine's byte order sees it.
fn swapped(field: u16) -> u32 {
    u16::from_ne_bytes(field.to_be_bytes()).into()
}

#[cfg(test)]
mod tests;
