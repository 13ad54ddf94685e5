//! The statistics of a full Internet table of January 2024 that the generator copies: 901,899 IPv4
//! and 160,147 IPv6 prefixes (github.com/gaissmai/bart, internal/tests/testdata; MIT).

use super::Rng;

/// What is so of one family's table.
pub(super) struct Shape {
    /// From short to long.
    pub(super) lengths: &'static [Length],
    /// Where prefixes outside all others are.
    pub(super) regions: Regions,
    /// How prefixes huddle: those outside all shorter ones, then those inside one. Fitted, so that
    /// the generated table has as many distinct beginnings of 12, 16, 20 .. bits as the real one.
    pub(super) near: [Near; 2],
}

/// What is so of all prefixes of one length.
pub(super) struct Length {
    pub(super) len: u8,
    /// How many there are.
    pub(super) count: u32,
    /// How many of a hundred lie inside a shorter one.
    pub(super) nested_percent: u8,
    /// Of how many prefixes one of these is the longest that covers them.
    pub(super) covers: u32,
}

/// How often a prefix is put near an earlier one, and how near.
pub(super) struct Near {
    pub(super) percent: u64,
    /// The two differ in the last bit, with this probability in one more, and so on.
    pub(super) more_percent: u64,
}

/// No prefix is put near one of another block of this length.
pub(super) const REGION_BITS: u8 = 12;

/// Blocks of the address space with how many prefixes begin in each.
pub(super) enum Regions {
    /// The count of each /8 from 0 on.
    Eights(&'static [u16]),
    /// The first 16 bits of a /16, and its count.
    Sixteens(&'static [(u16, u16)]),
}

impl Shape {
    /// A region, drawn by its count: the block in the topmost bits, and its length.
    pub(super) fn region(&self, rng: &mut Rng) -> (u128, u8) {
        match self.regions {
            Regions::Eights(counts) => {
                let block = pick(counts.iter().copied(), rng);
                ((block as u128) << 120, 8)
            }
            Regions::Sixteens(blocks) => {
                let block = pick(blocks.iter().map(|&(_, count)| count), rng);
                (u128::from(blocks[block].0) << 112, 16)
            }
        }
    }
}

/// An index, drawn by the counts.
fn pick(counts: impl Iterator<Item = u16> + Clone, rng: &mut Rng) -> usize {
    let total: u64 = counts.clone().map(u64::from).sum();
    let mut at = rng.below(total);
    for (index, count) in counts.enumerate() {
        match at.checked_sub(count.into()) {
            Some(rest) => at = rest,
            None => return index,
        }
    }
    unreachable!("what is drawn is below the sum of the counts")
}

const fn length(len: u8, count: u32, nested_percent: u8, covers: u32) -> Length {
    Length {
        len,
        count,
        nested_percent,
        covers,
    }
}

pub(super) static V4: Shape = Shape {
    lengths: LENGTHS4,
    regions: Regions::Eights(EIGHTS4),
    near: [
        Near {
            percent: 98,
            more_percent: 66,
        },
        Near {
            percent: 99,
            more_percent: 62,
        },
    ],
};

pub(super) static V6: Shape = Shape {
    lengths: LENGTHS6,
    regions: Regions::Sixteens(SIXTEENS6),
    near: [
        Near {
            percent: 93,
            more_percent: 60,
        },
        Near {
            percent: 97,
            more_percent: 65,
        },
    ],
};

// Length, how many, percent nested, how many they cover.
#[rustfmt::skip]
const LENGTHS4: &[Length] = &[
    length(8, 16, 0, 6419), length(9, 13, 31, 3677), length(10, 38, 0, 5608), length(11, 103, 4, 9156),
    length(12, 299, 10, 11980), length(13, 581, 17, 11548), length(14, 1203, 15, 19507), length(15, 2100, 22, 20931),
    length(16, 13490, 24, 82900), length(17, 8235, 46, 32295), length(18, 13798, 50, 34696), length(19, 24870, 39, 55366),
    length(20, 42611, 54, 46144), length(21, 50750, 55, 32602), length(22, 108623, 45, 52954), length(23, 96510, 57, 31131),
    length(24, 537698, 51, 295), length(25, 20, 100, 0), length(26, 3, 100, 0), length(27, 11, 100, 0),
    length(28, 18, 94, 0), length(29, 17, 100, 0), length(30, 3, 100, 0), length(31, 3, 100, 0),
    length(32, 886, 99, 0),
];

#[rustfmt::skip]
const LENGTHS6: &[Length] = &[
    length(16, 1, 0, 0), length(19, 1, 0, 1), length(20, 16, 0, 6048), length(21, 3, 0, 3),
    length(22, 7, 0, 120), length(23, 8, 0, 13), length(24, 30, 10, 1270), length(25, 8, 12, 5),
    length(26, 15, 0, 16), length(27, 20, 10, 243), length(28, 193, 44, 834), length(29, 4371, 1, 10001),
    length(30, 650, 44, 1775), length(31, 284, 46, 494), length(32, 22548, 25, 40130), length(33, 2926, 81, 3588),
    length(34, 2603, 72, 2260), length(35, 1043, 62, 878), length(36, 5996, 57, 4836), length(37, 880, 75, 565),
    length(38, 1617, 52, 1481), length(39, 1377, 82, 478), length(40, 13418, 76, 7382), length(41, 903, 53, 210),
    length(42, 2301, 80, 2191), length(43, 1001, 43, 1027), length(44, 14365, 72, 2800), length(45, 1553, 82, 385),
    length(46, 3039, 53, 601), length(47, 3153, 79, 1410), length(48, 75488, 59, 44), length(49, 11, 100, 0),
    length(50, 3, 100, 0), length(52, 1, 100, 0), length(55, 1, 100, 0), length(56, 24, 96, 0),
    length(58, 20, 100, 0), length(60, 2, 0, 0), length(64, 184, 97, 2), length(112, 2, 100, 0),
    length(122, 1, 100, 0), length(124, 4, 100, 0), length(125, 9, 100, 0), length(126, 19, 100, 0),
    length(127, 42, 100, 0), length(128, 6, 100, 0),
];

#[rustfmt::skip]
const EIGHTS4: &[u16] = &[
    0, 2617, 2412, 250, 20, 7686, 593, 11, 2113, 1, 0, 285, 1846, 904, 4240, 527,
    154, 1223, 993, 9, 372, 5, 228, 9730, 5581, 7, 1, 4848, 1, 25, 1, 4313,
    213, 1, 1359, 1001, 3818, 7833, 5481, 1693, 421, 7335, 1567, 3227, 368, 25609, 7878, 1238,
    0, 3433, 3565, 982, 2124, 2, 793, 1070, 28, 326, 2869, 2067, 1525, 4326, 4511, 2791,
    8536, 3591, 7794, 4875, 3578, 6512, 3145, 2145, 5424, 1, 4763, 2430, 1239, 4343, 3457, 4333,
    3965, 3044, 2732, 2339, 2882, 5590, 1338, 3605, 2242, 6061, 1995, 11139, 4116, 4225, 6423, 6871,
    2614, 1013, 2185, 1150, 269, 2242, 5134, 38520, 7781, 1625, 2372, 3855, 1778, 6501, 3768, 5481,
    3914, 3059, 2625, 3937, 3503, 6112, 3728, 3219, 3745, 2081, 4398, 4273, 2767, 3844, 246, 0,
    2079, 1938, 1725, 3680, 1708, 746, 2962, 584, 1543, 1752, 4789, 2714, 1998, 2384, 2726, 2725,
    2069, 803, 2798, 2770, 3323, 3204, 1662, 2362, 2691, 850, 6141, 2411, 3054, 2102, 1944, 3331,
    3676, 2568, 5185, 2113, 2604, 2609, 1803, 2850, 5923, 1338, 7633, 2620, 4468, 5250, 2860, 1851,
    6289, 10444, 6290, 5033, 4281, 5999, 4313, 3681, 4047, 32643, 9981, 9350, 7096, 9058, 13576, 3139,
    14143, 12257, 10308, 8123, 5727, 4586, 8009, 8667, 11724, 10083, 13867, 13837, 6307, 4956, 5776, 5074,
    6286, 6963, 6270, 4272, 6629, 6124, 1624, 112, 9855, 4751, 2551, 1276, 2843, 1695, 1808, 4335,
];

#[rustfmt::skip]
const SIXTEENS6: &[(u16, u16)] = &[
    (0x2001, 20151), (0x2049, 16), (0x2400, 3646), (0x2401, 5270), (0x2402, 7519), (0x2403, 1347),
    (0x2404, 2451), (0x2405, 2314), (0x2406, 1925), (0x2407, 2728), (0x2408, 7256), (0x2409, 10038),
    (0x240a, 4494), (0x240b, 40), (0x240c, 15), (0x240d, 74), (0x240e, 3149), (0x2600, 5894),
    (0x2602, 2354), (0x2603, 761), (0x2604, 3163), (0x2605, 2471), (0x2606, 2209), (0x2607, 2542),
    (0x2608, 35), (0x2610, 470), (0x2620, 2886), (0x2800, 3171), (0x2801, 844), (0x2803, 2989),
    (0x2804, 18064), (0x2806, 3301), (0x2a00, 3247), (0x2a01, 2761), (0x2a02, 7663), (0x2a03, 2524),
    (0x2a04, 1876), (0x2a05, 1368), (0x2a06, 1894), (0x2a07, 892), (0x2a08, 11), (0x2a09, 1176),
    (0x2a0a, 1108), (0x2a0b, 1927), (0x2a0c, 1100), (0x2a0d, 1658), (0x2a0e, 1825), (0x2a0f, 1214),
    (0x2a10, 976), (0x2a11, 572), (0x2a12, 1036), (0x2a13, 229), (0x2c0e, 27), (0x2c0f, 1452),
];
