//! Close up: packets have left the burst for another worker's, and what is known of the others
//! moves to their new positions.

use linerate_tables::parse::{Checks, Classes, Mask};

use super::context::{Context, Marks, Packets, ones};

/// Moves the bits of a mask together: those at the positions of `kept`, in order (Warren, Hacker's
/// Delight, 2nd edition, 7-4).
struct Compress {
    kept: Mask,
    moves: [Mask; 6],
}

impl Compress {
    fn new(kept: Mask) -> Self {
        // Of each position: whether the number of gaps below it has a bit.
        let mut gaps = !kept << 1;
        let mut left = kept;
        let moves = std::array::from_fn(|step| {
            let mut parity = gaps;
            for shift in [1, 2, 4, 8, 16, 32] {
                parity ^= parity << shift;
            }
            let moved = parity & left;
            left = (left ^ moved) | (moved >> (1 << step));
            gaps &= !parity;
            moved
        });
        Self { kept, moves }
    }

    #[inline(always)]
    fn of(&self, mask: Mask) -> Mask {
        let mut mask = mask & self.kept;
        if mask == 0 {
            return 0;
        }
        for (step, moves) in self.moves.iter().enumerate() {
            let moved = mask & moves;
            mask = (mask ^ moved) | (moved >> (1 << step));
        }
        mask
    }
}

impl Context<'_> {
    /// The packets of `gone` have left a burst that had `all`, validated and not yet looked up, for
    /// another worker: `to` says where each went, for traces.
    pub fn close_up(&mut self, all: Mask, gone: Mask, mut to: impl FnMut(usize) -> String) {
        let kept = all & !gone;
        let tracer = &mut self.exceptions.tracer;
        if tracer.is_any_traced() {
            for index in ones(gone) {
                tracer.end(index, || to(index));
            }
            let places = ones(kept).collect::<Vec<_>>();
            tracer.close_up(&places);
        }
        self.packets.close_up(kept);
    }
}

impl Packets {
    fn close_up(&mut self, kept: Mask) {
        let compress = Compress::new(kept);
        let parsed = &mut *self.parsed;
        let has_v6 = parsed.class.v6 & kept != 0;
        let has_verdicts = kept & !self.live != 0;
        for (to, from) in ones(kept).enumerate() {
            parsed.keys4[to] = parsed.keys4[from];
            parsed.src4[to] = parsed.src4[from];
            parsed.dst4[to] = parsed.dst4[from];
            parsed.end[to] = parsed.end[from];
            if has_v6 {
                parsed.keys6[to] = parsed.keys6[from];
            }
            if has_verdicts {
                self.verdicts[to] = self.verdicts[from];
            }
        }
        let of = |mask| compress.of(mask);
        // Every field by name: one that is missing here would belong to other packets.
        let Classes {
            v4,
            v6,
            tcp,
            udp,
            icmp,
            fragment,
            options,
            vlan,
            other,
            group,
            ours,
            malformed,
        } = parsed.class;
        parsed.class = Classes {
            v4: of(v4),
            v6: of(v6),
            tcp: of(tcp),
            udp: of(udp),
            icmp: of(icmp),
            fragment: of(fragment),
            options: of(options),
            vlan: of(vlan),
            other: of(other),
            group: of(group),
            ours: of(ours),
            malformed: of(malformed),
        };
        let Checks {
            ip_bad,
            expired,
            l4_good,
            l4_bad,
            l4_unchecked,
        } = parsed.checks;
        parsed.checks = Checks {
            ip_bad: of(ip_bad),
            expired: of(expired),
            l4_good: of(l4_good),
            l4_bad: of(l4_bad),
            l4_unchecked: of(l4_unchecked),
        };
        let Marks {
            to_group,
            link_local,
            l2_group,
            whole,
        } = self.marks;
        self.marks = Marks {
            to_group: of(to_group),
            link_local: of(link_local),
            l2_group: of(l2_group),
            whole: of(whole),
        };
        if self.translated & kept != 0 {
            self.close_up_originals(kept);
        }
        for mask in self.translations() {
            *mask = of(*mask);
        }
        self.plain = of(self.plain);
        self.keep(of(self.live));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_move_together_in_their_order() {
        let mut random = linerate_testkit::Random::new(1);
        for round in 0..10_000 {
            let kept: Mask = match round {
                0 => 0,
                1 => Mask::MAX,
                _ => random.bits(),
            };
            let mask: Mask = random.bits();
            let expected = ones(kept)
                .enumerate()
                .fold(0, |sum, (to, from)| sum | (mask >> from & 1) << to);
            assert_eq!(Compress::new(kept).of(mask), expected, "{kept:x} {mask:x}");
        }
    }
}
