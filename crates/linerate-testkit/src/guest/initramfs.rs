//! The first root of a guest: a busybox, the kernel's modules that are wanted with all that they
//! need, and a script that goes on to this machine's own root.

use super::First;
use std::path::Path;

/// What the guest's wires, devices and file systems are made of.
const MODULES: [&str; 14] = [
    "virtio_pci",
    "virtio_net",
    "9pnet_virtio",
    "9p",
    "af_packet",
    "veth",
    "tun",
    "vrf",
    "8021q",
    "ipip",
    "sit",
    "ip6_tunnel",
    "fou",
    "overlay",
];

/// How each guest begins. `root` and `out` are QEMU's names of two folders of the machine around.
const BEGIN: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
for module in $(cat /order); do insmod /modules/$module.ko; done
options=trans=virtio,version=9p2000.L,msize=262144
mount -t 9p -o $options,ro,cache=loose root /root || poweroff -f
"#;

/// Goes on with a script, on the root as it is.
const SCRIPT: &str = r#"
mount -t 9p -o $options out /root/mnt
mount -t proc proc /root/proc
mount -t sysfs sys /root/sys
mount -t devtmpfs dev /root/dev
mkdir -p /root/dev/shm
mount -t tmpfs shm /root/dev/shm
mount -t tmpfs run /root/run
chroot /root /bin/sh /mnt/script > /root/mnt/output 2>&1 < /dev/null
echo $? > /root/mnt/status
sync
poweroff -f
"#;

/// Goes on with systemd, on a root that can be written but keeps nothing: without what this machine
/// has configured, and with no other service than the one that runs the script. What udev would do,
/// and nobody else does here, is the mode of the TAPs' device.
const SYSTEMD: &str = r#"
mkdir /over /whole
mount -t tmpfs over /over
mkdir /over/upper /over/work
mount -t overlay -o lowerdir=/root,upperdir=/over/upper,workdir=/over/work over /whole
mount -t 9p -o $options out /whole/mnt
chmod 666 /dev/net/tun
cd /whole
rm -rf .dockerenv etc/systemd etc/fstab lib/systemd/system-generators lib/systemd/system/*.wants
mkdir -p etc/systemd/system usr/local/bin
cat > etc/systemd/system/guest.service <<END
[Unit]
DefaultDependencies=no
Requires=systemd-journald.service
After=systemd-journald.service
[Service]
Type=oneshot
StandardOutput=file:/mnt/output
StandardError=inherit
ExecStart=/bin/sh /mnt/service
END
cat > mnt/service <<END
sh /mnt/script
echo \$? > /mnt/status
sync
systemctl poweroff --force --force
END
touch usr/local/bin/linerate
mount --bind "/whole$(cat mnt/binary)" usr/local/bin/linerate
exec switch_root /whole /lib/systemd/systemd --unit=guest.service --show-status=no
"#;

/// The archive, of what is in `folder`.
pub(crate) fn archive(folder: &Path, first: First) -> Vec<u8> {
    let go_on = match first {
        First::Script => SCRIPT,
        First::Systemd => SYSTEMD,
    };
    with(folder, &MODULES, &(BEGIN.to_owned() + go_on))
}

/// The archive with these modules, and a first process.
pub(crate) fn with(folder: &Path, modules: &[&str], init: &str) -> Vec<u8> {
    let mut archive = Archive::default();
    for name in ["bin", "dev", "proc", "root", "modules"] {
        archive.entry(name, 0o040_755, &[]);
    }
    let busybox = std::fs::read(folder.join("busybox")).unwrap();
    archive.entry("bin/busybox", 0o100_755, &busybox);
    archive.entry("init", 0o100_755, init.as_bytes());
    let mut order = Vec::new();
    for module in modules {
        visit(&folder.join("modules"), module, &mut order);
    }
    for (name, bytes) in &order {
        archive.entry(&format!("modules/{name}.ko"), 0o100_644, bytes);
    }
    let names: Vec<&str> = order.iter().map(|(name, _)| &**name).collect();
    archive.entry("order", 0o100_644, names.join("\n").as_bytes());
    archive.entry("TRAILER!!!", 0, &[]);
    archive.bytes
}

/// Adds a module behind all that it needs. What is not there is part of the kernel itself.
fn visit(folder: &Path, name: &str, order: &mut Vec<(String, Vec<u8>)>) {
    let spelled = |name: &str| name.replace('-', "_");
    if order
        .iter()
        .any(|(known, _)| spelled(known) == spelled(name))
    {
        return;
    }
    let names = [name.to_owned(), spelled(name), name.replace('_', "-")];
    let read = |name: &String| {
        Some((
            name.clone(),
            std::fs::read(folder.join(format!("{name}.ko"))).ok()?,
        ))
    };
    let Some((name, bytes)) = names.iter().find_map(read) else {
        return;
    };
    for needed in needs(&bytes) {
        visit(folder, &needed, order);
    }
    order.push((name, bytes));
}

/// What a module says that it needs: a string of its section `.modinfo`.
fn needs(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let at = module.windows(KEY.len()).position(|window| window == KEY);
    let Some(at) = at else { return Vec::new() };
    let value = module[at + KEY.len()..].split(|byte| *byte == 0).next();
    let value = String::from_utf8_lossy(value.unwrap_or_default()).into_owned();
    let names = value.split(',').filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// A cpio archive of the kind `newc` (the kernel's
/// Documentation/driver-api/early-userspace/buffer-format).
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    fn entry(&mut self, name: &str, mode: u32, data: &[u8]) {
        self.entries += 1;
        let (size, name_size) = (data.len() as u32, name.len() as u32 + 1);
        // Inode, mode, owner, group, links, time, size, devices of file and node, name, no
        // checksum.
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            size,
            0,
            0,
            0,
            0,
            name_size,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(data);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[test]
fn entries_are_aligned_and_headers_are_of_110_bytes() {
    let mut archive = Archive::default();
    archive.entry("a", 0o100_644, b"12345");
    assert_eq!(&archive.bytes[..14], b"07070100000001");
    assert_eq!(&archive.bytes[54..62], b"00000005");
    assert_eq!(&archive.bytes[110..120], b"a\x0012345\0\0\0");
}

#[test]
fn modules_say_what_they_need() {
    assert_eq!(
        needs(b"x\0license=GPL\0depends=a,b-c\0name=d"),
        ["a", "b-c"]
    );
    assert!(needs(b"x\0depends=\0").is_empty() && needs(b"").is_empty());
}
