//! What the CPU can execute, detected once into a value, and what it is called.

use std::fmt;

use super::Tree;

/// The instruction sets that kernels come in, lowest first. Choose a function pointer by it once
/// per worker, never per packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isa {
    /// What every CPU of the architecture has: SSE2 on x86-64, NEON on aarch64.
    Baseline,
    /// AVX2, BMI1, BMI2, LZCNT, POPCNT, SSE4.2 (x86-64-v3).
    Avx2,
    /// AVX-512 F, BW, CD, DQ, VL (x86-64-v4), and some of what came later.
    Avx512 {
        /// Galois field instructions: Toeplitz hashes as bit matrices.
        gfni: bool,
        /// Byte permutations across a vector.
        vbmi: bool,
        /// Population counts per lane.
        vpopcntdq: bool,
        /// Carry-less multiplication per lane: CRCs.
        vpclmulqdq: bool,
    },
}

impl Isa {
    /// What this CPU, and the kernel and hypervisor under it, let us use.
    #[cfg(target_arch = "x86_64")]
    pub fn detect() -> Self {
        let v3 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("sse4.2");
        let v4 = v3
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512cd")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        match (v3, v4) {
            (_, true) => Self::Avx512 {
                gfni: is_x86_feature_detected!("gfni"),
                vbmi: is_x86_feature_detected!("avx512vbmi"),
                vpopcntdq: is_x86_feature_detected!("avx512vpopcntdq"),
                vpclmulqdq: is_x86_feature_detected!("vpclmulqdq"),
            },
            (true, false) => Self::Avx2,
            (false, false) => Self::Baseline,
        }
    }

    /// What this CPU lets us use.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn detect() -> Self {
        Self::Baseline
    }

    /// This level, or as much of it as this CPU has. Code that picks a kernel calls this first,
    /// since any level can be constructed.
    pub fn available(self) -> Self {
        match (self, Self::detect()) {
            (
                Self::Avx512 {
                    gfni,
                    vbmi,
                    vpopcntdq,
                    vpclmulqdq,
                },
                Self::Avx512 {
                    gfni: has_gfni,
                    vbmi: has_vbmi,
                    vpopcntdq: has_vpopcntdq,
                    vpclmulqdq: has_vpclmulqdq,
                },
            ) => Self::Avx512 {
                gfni: gfni && has_gfni,
                vbmi: vbmi && has_vbmi,
                vpopcntdq: vpopcntdq && has_vpopcntdq,
                vpclmulqdq: vpclmulqdq && has_vpclmulqdq,
            },
            (wanted, detected) => wanted.min(detected),
        }
    }

    /// This level and all below it, lowest first: what a test or benchmark of kernels runs through.
    pub fn levels(self) -> Vec<Self> {
        let mut levels = vec![Self::Baseline, Self::Avx2];
        levels.retain(|&level| level < self);
        levels.push(self);
        levels
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Baseline => f.write_str("baseline"),
            Self::Avx2 => f.write_str("avx2"),
            Self::Avx512 {
                gfni,
                vbmi,
                vpopcntdq,
                vpclmulqdq,
            } => {
                f.write_str("avx512")?;
                let parts = [
                    (gfni, "gfni"),
                    (vbmi, "vbmi"),
                    (vpopcntdq, "vpopcntdq"),
                    (vpclmulqdq, "vpclmulqdq"),
                ];
                parts
                    .iter()
                    .filter(|(has, _)| *has)
                    .try_for_each(|(_, name)| write!(f, "+{name}"))
            }
        }
    }
}

/// The CPU's name as the kernel gives it.
pub(super) fn model(tree: &Tree) -> String {
    let info = tree.read("proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim().to_string()).filter(|text| !text.is_empty())
    };
    field("model name")
        .or_else(|| field("Model"))
        .unwrap_or_else(|| "unknown".into())
}

/// The hypervisor under this machine; `None` on bare metal, or if it is unknown.
pub(super) fn hypervisor(tree: &Tree) -> Option<String> {
    if let Some(kind) = tree
        .read("sys/hypervisor/type")
        .filter(|kind| !kind.is_empty())
    {
        return Some(kind);
    }
    let virtual_machine = tree.read("proc/cpuinfo")?.lines().any(|line| {
        line.starts_with("flags")
            && line
                .split_ascii_whitespace()
                .any(|flag| flag == "hypervisor")
    });
    virtual_machine.then(|| vendor(tree).unwrap_or_else(|| "unknown".into()))
}

/// The hypervisor's signature: CPUID 4000_0000h, where the flag above is set.
#[cfg(target_arch = "x86_64")]
fn vendor(tree: &Tree) -> Option<String> {
    if !tree.is_machine() {
        return None;
    }
    let leaf = core::arch::x86_64::__cpuid(0x4000_0000);
    let bytes = [leaf.ebx, leaf.ecx, leaf.edx]
        .map(u32::to_le_bytes)
        .concat();
    let signature = String::from_utf8_lossy(&bytes)
        .trim_matches(['\0', ' '])
        .to_string();
    Some(match signature.as_str() {
        "KVMKVMKVM" => "KVM".into(),
        "Microsoft Hv" => "Hyper-V".into(),
        "VMwareVMware" => "VMware".into(),
        "XenVMMXenVMM" => "Xen".into(),
        "TCGTCGTCGTCG" => "QEMU TCG".into(),
        _ => signature,
    })
}

#[cfg(not(target_arch = "x86_64"))]
fn vendor(_: &Tree) -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_rise_and_end_at_the_detected_one() {
        let isa = Isa::detect();
        let levels = isa.levels();
        assert!(levels.is_sorted() && levels[0] == Isa::Baseline && levels.last() == Some(&isa));
        assert_eq!(Isa::Baseline.levels(), [Isa::Baseline]);
        assert!(levels.iter().all(|level| level.available() == *level));
        let everything = Isa::Avx512 {
            gfni: true,
            vbmi: true,
            vpopcntdq: true,
            vpclmulqdq: true,
        };
        assert_eq!(everything.available(), isa);
    }

    #[test]
    fn names_list_what_the_level_adds() {
        let isa = Isa::Avx512 {
            gfni: true,
            vbmi: false,
            vpopcntdq: true,
            vpclmulqdq: false,
        };
        assert_eq!(isa.to_string(), "avx512+gfni+vpopcntdq");
        assert!(isa > Isa::Avx2 && Isa::Avx2 > Isa::Baseline);
    }
}
