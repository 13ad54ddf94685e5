//! Compiles a stream's keys into a template: sizes, payload, lengths and checksums.

use std::collections::BTreeMap;
use std::num::Wrapping;

use linerate_wire::checksum::{add, fold, nonzero, sum};
use linerate_wire::ethernet::MacAddr;

use super::compiled::Stream;
use super::generator::{Generator, split_mix};
use super::keys::Field;
use super::layout::{Layout, Sum, Varied};
use super::parts::Payload;
use super::size::Sizes;
use super::values::Values;
use super::vary::{Drawn, FieldWriter, LiveSum, SizeTable, Variation};
use super::{StreamError, StreamSpec};
use crate::figures::TemplateView;
use crate::signature::{SIGNATURE_BYTES, SUM};
use crate::units::{FCS_BYTES, LEAST_FRAME};

/// See [`StreamSpec::compile`].
pub(super) fn compile(
    spec: &StreamSpec,
    id: u16,
    src: MacAddr,
    dst: MacAddr,
    seed: u64,
) -> Result<Stream, StreamError> {
    if let Some(file) = &spec.pcap {
        let problem = format!("pcap={file}: a capture has its own frames, and no template");
        return Err(StreamError::new(
            problem,
            "leave pcap out, or all header keys",
        ));
    }
    // Streams of one session differ, unless they have the same seed.
    let mut seeds = match spec.seed {
        Some(seed) => seed,
        None => seed ^ u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    };
    let layout = Layout::of(spec, src, dst)?;
    let shape = Shape {
        is_signed: spec.has_signature(),
        sizes: SizeChoice::of(spec, &layout)?,
    };
    let nesting = nesting(spec, &layout)?;
    let (field_seed, size_seed) = (split_mix(&mut seeds), split_mix(&mut seeds));
    let template = shape.template(&layout, spec.payload.as_ref(), split_mix(&mut seeds));
    let view = view(spec, &layout, &shape);
    let fields = |live: &[Option<usize>], template: &mut [u8]| {
        field_writers(&layout, live, template, field_seed, &nesting)
    };
    Ok(shape.finish(id, &layout, template, view, fields, size_seed))
}

/// How many frames each value is kept for, of fields in a nest.
fn nesting(spec: &StreamSpec, layout: &Layout<'_>) -> Result<BTreeMap<Field, u128>, StreamError> {
    let mut all = BTreeMap::new();
    let Some(nest) = &spec.nest else {
        return Ok(all);
    };
    let wrong =
        |problem: String, fix: &str| Err(StreamError::new(format!("nest={nest}: {problem}"), fix));
    let mut every = 1u128;
    for digit in &nest.0 {
        let mut count = None;
        for field in digit {
            let name = field.key().0;
            let Some(varied) = layout.varied.iter().find(|varied| varied.field == *field) else {
                return wrong(
                    format!("`{name}` does not vary"),
                    "give it a range, a list or a prefix, or leave it out of nest",
                );
            };
            let own = varied.values.count();
            if let Some((other, different)) = count.filter(|&(_, count)| count != own) {
                return wrong(
                    format!("`{name}` has {own} values and `{other}` {different}"),
                    "give the fields of a tuple as many values each, or nest them with a comma",
                );
            }
            count = Some((name, own));
            all.insert(*field, every);
        }
        every = every.saturating_mul(count.map_or(1, |(_, count)| count));
    }
    Ok(all)
}

/// The lengths of frames, and their order.
struct SizeChoice {
    /// In memory: without FCS.
    lens: Vec<usize>,
    /// Indexes of `lens`; `None` for a single length.
    order: Option<Values>,
    /// With FCS.
    mean: f64,
}

struct Shape {
    is_signed: bool,
    sizes: SizeChoice,
}

impl SizeChoice {
    fn of(spec: &StreamSpec, layout: &Layout<'_>) -> Result<Self, StreamError> {
        let least = least(layout, spec.has_signature());
        let values = match &spec.size {
            None => Values::Fixed(least as u128),
            Some(sizes) => sizes.values(),
        };
        let (sizes, order): (Vec<u128>, _) = match values {
            Values::Fixed(size) => (vec![size], None),
            Values::List(list) => {
                let mut sizes = list.clone();
                sizes.sort_unstable();
                sizes.dedup();
                let index = |size: &u128| sizes.binary_search(size).unwrap_or_default() as u128;
                let order = list.iter().map(index).collect();
                (sizes, Some(Values::List(order)))
            }
            Values::Range { first, last, step } => {
                let sizes: Vec<_> = (first..=last).step_by(step as usize).collect();
                let order = Values::Range {
                    first: 0,
                    last: sizes.len() as u128 - 1,
                    step: 1,
                };
                (sizes, Some(order))
            }
            Values::RandomOf { first, last } => {
                let order = Values::RandomOf {
                    first: 0,
                    last: last - first,
                };
                ((first..=last).collect(), Some(order))
            }
            Values::Random => (vec![LEAST_FRAME as u128], None),
        };
        let smallest = sizes.iter().copied().min().unwrap_or_default() as usize;
        if smallest < least {
            return Err(too_small(spec, layout, smallest, least));
        }
        let sum: u128 = match &order {
            Some(Values::List(order)) => order.iter().map(|&index| sizes[index as usize]).sum(),
            _ => sizes.iter().sum(),
        };
        let count = match &order {
            Some(Values::List(order)) => order.len(),
            _ => sizes.len(),
        };
        let len = |&size: &u128| size as usize - FCS_BYTES;
        Ok(Self {
            order: order.filter(|_| sizes.len() > 1),
            lens: sizes.iter().map(len).collect(),
            mean: sum as f64 / count as f64,
        })
    }
}

/// Smallest frame that holds the headers, FCS included.
fn least(layout: &Layout<'_>, is_signed: bool) -> usize {
    let signature = if is_signed { SIGNATURE_BYTES } else { 0 };
    LEAST_FRAME.max(layout.head.len() + signature + FCS_BYTES)
}

fn too_small(spec: &StreamSpec, layout: &Layout<'_>, size: usize, least: usize) -> StreamError {
    let given = spec.size.as_ref().map(Sizes::to_string).unwrap_or_default();
    let mut parts: Vec<_> = layout
        .layers
        .iter()
        .map(|(name, bytes)| format!("{bytes} {name}"))
        .collect();
    if spec.has_signature() {
        parts.push(format!("{SIGNATURE_BYTES} signature"));
    }
    parts.push(format!("{FCS_BYTES} FCS"));
    let mut fix = match spec.size {
        Some(Sizes::Imix) => format!("write size=imix:{least}*7,570*4,1518*1"),
        _ => format!("write size={least} or more"),
    };
    let unsigned = self::least(layout, false);
    if spec.has_signature() && size >= unsigned {
        fix += ", or signature=off, but then loss and latency are unknown";
    }
    StreamError::new(
        format!(
            "size={given}: {size} bytes are too few, these frames need {least}: {}",
            parts.join(" + ")
        ),
        fix,
    )
}

impl Shape {
    /// Headers and payload of the longest frame.
    fn template(&self, layout: &Layout<'_>, payload: Option<&Payload>, mut seed: u64) -> Vec<u8> {
        let longest = self.sizes.lens.iter().copied().max().unwrap_or_default();
        let bytes = longest - layout.head.len();
        let pattern: Box<dyn Iterator<Item = u8>> = match payload.unwrap_or(&Payload::Zero) {
            Payload::Zero => Box::new(std::iter::repeat(0)),
            Payload::Ones => Box::new(std::iter::repeat(0xff)),
            Payload::Abc => Box::new((b'a'..=b'z').cycle()),
            Payload::Inc => Box::new((0..=255).cycle()),
            Payload::Random => {
                Box::new(std::iter::from_fn(move || Some(split_mix(&mut seed) as u8)))
            }
            Payload::Hex(bytes) => Box::new(bytes.iter().copied().cycle()),
        };
        let mut template = layout.head.clone();
        template.extend(pattern.take(bytes));
        template
    }

    fn finish(
        self,
        id: u16,
        layout: &Layout<'_>,
        mut template: Vec<u8>,
        view: TemplateView,
        fields: impl FnOnce(&[Option<usize>], &mut [u8]) -> Vec<FieldWriter>,
        size_seed: u64,
    ) -> Stream {
        let live = live_sums(layout);
        let fields = fields(&live, &mut template);
        let mut table = SizeTable::default();
        let positions = layout.lengths.iter().map(|length| length.at);
        let dead = layout
            .sums
            .iter()
            .zip(&live)
            .filter(|(_, live)| live.is_none());
        table.patch_at = positions.chain(dead.map(|(sum, _)| sum.at)).collect();
        for &len in &self.sizes.lens {
            let (frame, bases) = self.settled(layout, &live, &template[..len]);
            let word = |&at: &usize| [frame[at], frame[at + 1]];
            table.patches.extend(table.patch_at.iter().map(word));
            table.bases.extend(bases);
        }
        table.lens = self.sizes.lens.clone();
        if self.sizes.order.is_none() {
            for (&at, word) in table.patch_at.iter().zip(&table.patches) {
                template[at..at + 2].copy_from_slice(word);
            }
            table.patch_at.clear();
        }
        let order = self.sizes.order.as_ref();
        table.order = order.map(|order| Generator::<Wrapping<u32>>::new(order, size_seed));
        let sums = live_writers(layout, &live);
        let variation = (!fields.is_empty() || table.order.is_some())
            .then(|| Variation::new(table, fields, sums, &template));
        Stream::new(
            id,
            self.is_signed,
            template,
            self.sizes.mean,
            view,
            variation,
        )
    }

    /// One frame with its lengths, and with those checksums that are always the same; for the
    /// others the sums over the constant bytes are returned.
    fn settled(
        &self,
        layout: &Layout<'_>,
        live: &[Option<usize>],
        template: &[u8],
    ) -> (Vec<u8>, Vec<u32>) {
        let mut frame = template.to_vec();
        let len = frame.len();
        for length in &layout.lengths {
            let bytes = ((len - length.from) as u16).to_be_bytes();
            frame[length.at..length.at + 2].copy_from_slice(&bytes);
        }
        let mut signature = 0;
        if self.is_signed {
            frame[len - SIGNATURE_BYTES..].fill(0);
            // All headers begin at even offsets. SUM is in memory order.
            signature = if len.is_multiple_of(2) {
                SUM.swap_bytes()
            } else {
                SUM
            };
        }
        let mut bases = Vec::new();
        for (checksum, live) in layout.sums.iter().zip(live) {
            let total = base_sum(checksum, &frame, signature);
            if live.is_some() {
                bases.push(total.into());
                continue;
            }
            let value = if checksum.nonzero {
                nonzero(!total)
            } else {
                !total
            };
            frame[checksum.at..checksum.at + 2].copy_from_slice(&value.to_be_bytes());
        }
        (frame, bases)
    }
}

/// The sum over a checksum's bytes in `frame`; `signature` is the part of the signature.
fn base_sum(checksum: &Sum, frame: &[u8], signature: u16) -> u16 {
    let to = checksum.to.unwrap_or(frame.len());
    let mut total = sum(&frame[checksum.from..to]);
    if let Some((addresses, protocol)) = &checksum.pseudo {
        let len = (to - checksum.from) as u64;
        total = add(total, sum(&frame[addresses.clone()]));
        total = add(total, fold(u64::from(*protocol) + len));
    }
    match checksum.to {
        None => add(total, signature),
        Some(_) => total,
    }
}

/// For each checksum that varies, its number among those.
fn live_sums(layout: &Layout<'_>) -> Vec<Option<usize>> {
    let mut live: Vec<Option<usize>> = Vec::new();
    let mut count = 0;
    for sum in &layout.sums {
        let varied = layout
            .varied
            .iter()
            .any(|varied| sum.covers(varied.slot.at));
        let inner = layout.sums.iter().zip(&live);
        let over_live = inner
            .into_iter()
            .any(|(inner, live)| live.is_some() && sum.covers(inner.at));
        live.push((varied || over_live).then_some(count));
        count += usize::from(varied || over_live);
    }
    live
}

/// The numbers of the live checksums that are over the byte at `at`.
fn covering(layout: &Layout<'_>, live: &[Option<usize>], at: usize) -> Vec<usize> {
    let over = |(sum, live): (&Sum, &Option<usize>)| live.filter(|_| sum.covers(at));
    layout.sums.iter().zip(live).filter_map(over).collect()
}

fn live_writers(layout: &Layout<'_>, live: &[Option<usize>]) -> Vec<LiveSum> {
    let of = |(number, (sum, live_as)): (usize, (&Sum, &Option<usize>))| {
        live_as.map(|_| LiveSum {
            at: sum.at,
            nonzero: sum.nonzero,
            // Only those after it, since no checksum covers itself.
            feeds: covering(layout, live, sum.at)
                .into_iter()
                .filter(|&other| Some(other) > live[number])
                .collect(),
        })
    };
    layout
        .sums
        .iter()
        .zip(live)
        .enumerate()
        .filter_map(of)
        .collect()
}

/// Writers of the fields that vary. The other bits of their words move from the template to them,
/// unless two of them share a word.
fn field_writers(
    layout: &Layout<'_>,
    live: &[Option<usize>],
    template: &mut [u8],
    seed: u64,
    nesting: &BTreeMap<Field, u128>,
) -> Vec<FieldWriter> {
    let writer = |varied: &Varied| {
        let mut slot = varied.slot;
        let mut values = varied.values.clone();
        narrow(&mut slot, &mut values, template);
        let word = slot.at..slot.at + slot.bytes;
        let shares = layout
            .varied
            .iter()
            .any(|other| other.field != varied.field && word.contains(&other.slot.at));
        let mut base = 0;
        if !shares {
            let bytes = &mut template[word];
            base = bytes
                .iter()
                .fold(0, |word, &byte| word << 8 | u128::from(byte));
            bytes.fill(0);
        }
        // A field's values do not depend on its position.
        let seed = seed ^ (varied.field as u64 + 1).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let mask = shares.then(|| ((1u128 << slot.bits) - 1) << slot.shift);
        let drawn = Drawn {
            values: &values,
            seed,
            every: nesting.get(&varied.field).copied().unwrap_or(1),
        };
        FieldWriter::new(slot, drawn, base, mask, covering(layout, live, slot.at))
    };
    layout.varied.iter().map(writer).collect()
}

/// Moves the high part of a wide field that never changes into the template.
fn narrow(slot: &mut super::layout::Slot, values: &mut Values, template: &mut [u8]) {
    let varied = super::values::Varying {
        notation: super::values::Notation::Number,
        values: values.clone(),
    };
    let Some((least, most)) = varied.bounds() else {
        return;
    };
    let same = |bytes: &usize| *bytes < slot.bytes && least >> (bytes * 8) == most >> (bytes * 8);
    let Some(bytes) = [4, 8].into_iter().find(same) else {
        return;
    };
    let low = (1u128 << (bytes * 8)) - 1;
    let high = (least & !low).to_be_bytes();
    let word = &mut template[slot.at..slot.at + slot.bytes - bytes];
    word.copy_from_slice(&high[16 - slot.bytes..16 - bytes]);
    match values {
        Values::Range { first, last, .. } | Values::RandomOf { first, last } => {
            (*first, *last) = (*first & low, *last & low);
        }
        Values::List(list) => list.iter_mut().for_each(|value| *value &= low),
        Values::Fixed(_) | Values::Random => {}
    }
    slot.at += slot.bytes - bytes;
    slot.bytes = bytes;
    slot.bits = bytes as u32 * 8;
}

fn view(spec: &StreamSpec, layout: &Layout<'_>, shape: &Shape) -> TemplateView {
    let shown = |field: Field| layout.shown.get(&field).cloned().unwrap_or_default();
    let tags = [Field::OuterVlan, Field::Vlan, Field::InnerVlan];
    let tags: Vec<_> = tags
        .iter()
        .filter_map(|tag| layout.shown.get(tag).cloned())
        .collect();
    let names = layout.layers.iter().map(|(name, _)| *name);
    let names: Vec<_> = names
        .filter(|name| !matches!(*name, "Ethernet" | "VLAN" | "service tag"))
        .collect();
    let kind = match names.is_empty() {
        true => format!("Ethernet {}", shown(Field::EtherType)),
        false => names.join(" / "),
    };
    TemplateView {
        dst_mac: shown(Field::DstMac),
        src_mac: shown(Field::SrcMac),
        dst_ip: shown(Field::Dst),
        src_ip: shown(Field::Src),
        src_port: shown(Field::SrcPort),
        dst_port: shown(Field::DstPort),
        kind,
        vlan: tags.join(","),
        size: match &spec.size {
            Some(size) => size.to_string(),
            None => (shape.sizes.lens[0] + FCS_BYTES).to_string(),
        },
        pattern: spec.payload.clone().unwrap_or_default().to_string(),
    }
}
