//! Any frames as a burst: each vector kernel of the burst parser says what the scalar one does, and
//! the scalar one finds headers where the wire crate's parser of single packets does.
//!
//! The input is frames, each behind a header of three bytes: offload flags, and its length.

use std::cell::RefCell;

use linerate_core::env::Isa;
use linerate_core::packet::{Burst, Offload, Pool, PoolCache, PoolConfig};
use linerate_tables::parse::{Checks, Classes, Parsed, Parser};
use linerate_wire::{FlowKey4, FlowKey6, MacAddr};

thread_local! {
    static POOL: RefCell<Option<(Pool, PoolCache)>> = const { RefCell::new(None) };
}

/// What is said of one packet.
#[derive(Debug, PartialEq)]
struct One {
    offsets: (u8, u16),
    end: u32,
    v4: Option<(FlowKey4, u32, u32)>,
    v6: Option<FlowKey6>,
    vlan_tci: Option<u16>,
    malformed: Option<String>,
}

/// What is said of a burst.
#[derive(Debug, PartialEq)]
struct All {
    class: Classes,
    checks: Checks,
    bytes: u64,
    packets: Vec<One>,
}

/// What a caller asks for.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Headers,
    Checked,
    Network,
    For,
}

pub(crate) fn check(input: &[u8]) {
    POOL.with_borrow_mut(|made| {
        let (pool, cache) = made.get_or_insert_with(|| {
            let pool = Pool::new(&PoolConfig::new("fuzz", 128)).expect("memory for a test");
            let cache = PoolCache::new(std::slice::from_ref(&pool));
            (pool, cache)
        });
        for asked in [Asked::Headers, Asked::Checked, Asked::Network, Asked::For] {
            let scalar = parse(Isa::Baseline, asked, input, pool, cache);
            for isa in Isa::detect().levels() {
                let vector = parse(isa, asked, input, pool, cache);
                assert_eq!(vector, scalar, "{isa:?} {asked:?}");
            }
        }
    });
}

fn parse(isa: Isa, asked: Asked, input: &[u8], pool: &Pool, cache: &mut PoolCache) -> All {
    let mut burst = Burst::new();
    let mut rest = input;
    while let Some(([flags, low, high], tail)) = rest.split_first_chunk()
        && burst.len() < Burst::CAPACITY
    {
        let len = usize::from(u16::from_le_bytes([*low, *high])).min(tail.len());
        let (frame, tail) = tail.split_at(len);
        rest = tail;
        let mut packet = cache.get(pool).expect("room for a burst");
        packet.set_data(&frame[..len.min(pool.room_bytes())]);
        for (bit, flag) in [
            Offload::CSUM_PARTIAL,
            Offload::CSUM_VALID,
            Offload::VLAN,
            Offload::GSO_TCP4,
        ]
        .into_iter()
        .enumerate()
        {
            if flags >> bit & 1 != 0 {
                packet.meta_mut().offload.insert(flag);
            }
        }
        assert!(burst.push(packet).is_ok(), "fewer than a burst holds");
    }
    let (parser, mut parsed) = (Parser::new(isa), Parsed::new());
    match asked {
        Asked::Headers => parser.parse(&mut burst, &mut parsed),
        Asked::Checked => parser.parse_checked(&mut burst, &mut parsed),
        Asked::Network => parser.parse_network(&mut burst, &mut parsed),
        Asked::For => parser.parse_for(&mut burst, &mut parsed, MacAddr::local(1)),
    }
    let packets = (0..burst.len()).map(|index| one(&burst, &parsed, index));
    let all = All {
        class: parsed.class,
        checks: parsed.checks,
        bytes: parsed.bytes,
        packets: packets.collect(),
    };
    if matches!(asked, Asked::Headers) {
        agrees_with_wire(&burst, &all);
    }
    cache.free(&mut burst);
    all
}

fn one(burst: &Burst, parsed: &Parsed, index: usize) -> One {
    let meta = burst.as_packets()[index].meta();
    let is = |mask: u64| mask >> index & 1 != 0;
    let malformed = parsed.reason(index);
    One {
        offsets: match malformed {
            // Where the parser looked before it gave up is not said.
            Some(_) => (0, 0),
            None => (meta.l3_offset, meta.l4_offset),
        },
        end: match malformed {
            Some(_) => 0,
            None => parsed.end[index],
        },
        v4: is(parsed.class.v4)
            .then(|| (parsed.keys4[index], parsed.src4[index], parsed.dst4[index])),
        v6: is(parsed.class.v6).then(|| parsed.keys6[index]),
        vlan_tci: is(parsed.class.vlan).then(|| parsed.vlan_tci[index]),
        malformed: malformed.map(|reason| reason.to_string()),
    }
}

fn agrees_with_wire(burst: &Burst, all: &All) {
    for (packet, said) in burst.as_packets().iter().zip(&all.packets) {
        match linerate_wire::parse(packet.data()) {
            Ok(headers) => {
                assert_eq!(said.malformed, None);
                assert_eq!(said.end as usize, headers.end);
                let l4 = headers.l4.unwrap_or(0);
                assert_eq!(usize::from(said.offsets.1), l4);
            }
            Err(reason) => assert_eq!(said.malformed, Some(reason.to_string())),
        }
    }
}
