//! Regions come and go while other threads map memory of their own: every part of the reserved
//! range always has an owner, so their mappings never fall into it, and none of theirs is lost.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used)]

use linerate_core::MemError;
use linerate_core::mem::{PageKind, PagePolicy, Region, RegionConfig};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::fs;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

const PAGE: usize = 4 << 10;
const MIB: usize = 1 << 20;

/// Every kind of region there is, as a policy and whether it is shared.
const KINDS: [(PagePolicy, bool); 8] = [
    (PagePolicy::Auto, false),
    (PagePolicy::Auto, true),
    (PagePolicy::Only(PageKind::Huge2M), false),
    (PagePolicy::Only(PageKind::Huge2M), true),
    (PagePolicy::Only(PageKind::Huge1G), false),
    (PagePolicy::Only(PageKind::Huge1G), true),
    (PagePolicy::Only(PageKind::Transparent), false),
    (PagePolicy::Only(PageKind::Base4K), true),
];

fn map(number: usize, (pages, shared): (PagePolicy, bool)) -> Result<Region, MemError> {
    Region::map(&RegionConfig {
        name: format!("region {number}"),
        bytes: (1 + number % 5) * MIB,
        pages,
        shared,
        ..RegionConfig::default()
    })
}

/// The part of the reserved range from the first region on that these tests use, and more.
fn reserved() -> Range<usize> {
    let first = map(0, (PagePolicy::Only(PageKind::Base4K), false)).unwrap();
    let first = first.as_ptr().addr();
    first..first + (1 << 30)
}

/// The addresses around `inside` that are mapped without a gap.
fn mapped_around(inside: usize) -> Range<usize> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut range: Range<usize> = 0..0;
    for line in maps.lines() {
        let (start, rest) = line.split_once('-').unwrap();
        let [start, end] = [start, rest.split(' ').next().unwrap()]
            .map(|address| usize::from_str_radix(address, 16).unwrap());
        if range.end == start {
            range.end = end;
        } else if range.contains(&inside) {
            break;
        } else {
            range = start..end;
        }
    }
    range
}

/// Makes and drops regions of all kinds, `count` in all; whether each kind came or not is counted.
fn come_and_go(count: usize, taken: &AtomicUsize) -> [usize; 2] {
    let mut came = [0; 2];
    loop {
        let number = taken.fetch_add(1, Ordering::Relaxed);
        if number >= count {
            return came;
        }
        match map(number, KINDS[number % KINDS.len()]) {
            Ok(region) => {
                for at in (0..region.len()).step_by(PAGE) {
                    // SAFETY: inside the region, which is this thread's own.
                    let word = unsafe { &mut *region.as_ptr().wrapping_add(at).cast::<usize>() };
                    assert_eq!(
                        std::mem::replace(word, !number),
                        0,
                        "a region begins as zeros"
                    );
                }
                came[0] += 1;
            }
            Err(MemError::Map { .. }) => came[1] += 1,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Maps, writes, checks and unmaps memory where the kernel puts it until `done`.
fn neighbour(seed: usize, reserved: &Range<usize>, done: &AtomicBool) -> usize {
    let mut round = seed;
    while !done.load(Ordering::Relaxed) {
        round += 1;
        let bytes = PAGE << (round % 11);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe {
            let rw = ProtFlags::READ | ProtFlags::WRITE;
            mmap_anonymous(ptr::null_mut(), bytes, rw, MapFlags::PRIVATE).unwrap()
        };
        // The heap and the threads' stacks come from the kernel just like this.
        assert!(
            !reserved.contains(&at.addr()),
            "{bytes} bytes at {at:?} lie in the reserved range {reserved:x?}: it had a hole"
        );
        let words = || {
            (0..bytes)
                .step_by(PAGE)
                .map(|offset| at.cast::<usize>().wrapping_byte_add(offset))
        };
        for word in words() {
            // SAFETY: inside the mapping, which is this thread's own.
            unsafe { word.write(round) };
        }
        thread::yield_now();
        for word in words() {
            // SAFETY: as above.
            assert_eq!(unsafe { word.read() }, round, "another thread wrote here");
        }
        // SAFETY: as above; nothing refers to it any more.
        unsafe { munmap(at, bytes).unwrap() };
    }
    round - seed
}

fn regions_leave_neighbours_alone(count: usize) -> [usize; 2] {
    let reserved = reserved();
    let (done, taken) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let neighbours = [0, 5].map(|seed| {
            scope.spawn({
                let (reserved, done) = (&reserved, &done);
                move || neighbour(seed, reserved, done)
            })
        });
        let makers = [(); 2].map(|()| scope.spawn(|| come_and_go(count, &taken)));
        let came = makers.map(|maker| maker.join());
        done.store(true, Ordering::Relaxed);
        for neighbour in neighbours {
            assert!(neighbour.join().unwrap() > 0, "a neighbour did nothing");
        }
        let came = came.map(|came| came.unwrap());
        let mapped = mapped_around(reserved.start);
        assert!(
            mapped.contains(&reserved.start) && mapped.end >= reserved.end,
            "of the reserved range {reserved:x?} only {mapped:x?} is left"
        );
        [came[0][0] + came[1][0], came[0][1] + came[1][1]]
    })
}

/// Sizes and alignments near the end of `usize` are refused, and leave the range as it was: regions
/// made afterwards do not overlap.
#[test]
fn regions_of_impossible_sizes_are_refused() {
    const TOP: usize = 1 << (usize::BITS - 1);
    for (bytes, align_bytes) in [
        (TOP, TOP),
        (TOP, 0),
        (usize::MAX, 0),
        (usize::MAX, usize::MAX),
        (PAGE, TOP),
        (PAGE, usize::MAX),
        (TOP - PAGE, TOP),
    ] {
        for pages in [PagePolicy::Auto, PagePolicy::Only(PageKind::Base4K)] {
            let config = RegionConfig {
                bytes,
                align_bytes,
                pages,
                ..RegionConfig::default()
            };
            let refused = Region::map(&config).unwrap_err();
            assert!(
                matches!(refused, MemError::RangeFull { .. }),
                "{bytes:x}: {refused}"
            );
        }
    }
    let kind = (PagePolicy::Only(PageKind::Base4K), false);
    let mut spans: Vec<_> = (0..4)
        .map(|number| map(number, kind).unwrap())
        .map(|region| (region.as_ptr().addr(), region.len(), region))
        .collect();
    spans.sort_by_key(|span| span.0);
    assert!(
        spans.is_sorted_by(|one, next| one.0 + one.1 <= next.0),
        "{spans:?}"
    );
}

#[test]
#[cfg_attr(miri, ignore = "needs the kernel's memory")]
fn regions_come_and_go_beside_other_mappings() {
    let [came, refused] = regions_leave_neighbours_alone(1_200);
    assert!(
        came >= 600 && came + refused == 1_200,
        "{came} regions, {refused} refused"
    );
}

const HUGE_PAGES: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

/// Sets the machine's 2 MiB pages back.
struct Before(String);

impl Drop for Before {
    fn drop(&mut self) {
        let _ = fs::write(HUGE_PAGES, &self.0);
    }
}

#[test]
#[ignore = "long: 100,000 regions with no, few and enough huge pages"]
fn regions_come_and_go_100_000_times_with_any_number_of_huge_pages() {
    let _before = Before(fs::read_to_string(HUGE_PAGES).unwrap());
    const COUNT: usize = 34_000;
    for pages in [0, 3, 64] {
        if let Err(error) = fs::write(HUGE_PAGES, format!("{pages}\n")) {
            linerate_testkit::skip(&format!(
                "{pages} huge pages: {HUGE_PAGES}: {error}; run as root"
            ));
            continue;
        }
        let [came, refused] = regions_leave_neighbours_alone(COUNT);
        println!("{pages} huge pages: {came} regions, {refused} refused");
        // Four of the eight kinds take any page; two want 2 MiB pages, which may run short.
        assert!(came >= COUNT / 2 && refused > 0);
        assert_eq!(
            pages > 0,
            came > COUNT / 2,
            "{came} regions on {pages} huge pages"
        );
    }
}
