//! A stream ready to write frames: a template, and what varies in it.

use linerate_core::packet::Packet;
use linerate_wire::checksum::checksum;
use linerate_wire::ethernet::{HEADER_LEN, MacAddr, set_macs};

use crate::apps::pktgen::TemplateView;
use crate::apps::pktgen::signature::{Label, SIGNATURE_BYTES};
use crate::apps::pktgen::units::FCS_BYTES;

/// A stream ready to write frames.
pub(crate) struct Stream {
    id: u16,
    template: Vec<u8>,
}

impl Stream {
    pub(super) fn new(id: u16, src: MacAddr, dst: MacAddr, frame_bytes: usize) -> Self {
        let len = frame_bytes.max(64) - FCS_BYTES;
        let mut template = vec![0; len];
        let [ip_len, udp_len] =
            [HEADER_LEN, HEADER_LEN + 20].map(|before| ((len - before) as u16).to_be_bytes());
        template[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0]);
        template[16..18].copy_from_slice(&ip_len);
        template[22..24].copy_from_slice(&[64, 17]);
        template[26..34].copy_from_slice(&[198, 18, 0, 1, 198, 19, 0, 1]);
        template[34..38].copy_from_slice(&[0, 9, 0, 9]);
        template[38..40].copy_from_slice(&udp_len);
        set_macs(&mut template, dst, src);
        let sum = checksum(&template[HEADER_LEN..HEADER_LEN + 20]);
        template[24..26].copy_from_slice(&sum.to_be_bytes());
        Self { id, template }
    }

    /// The number in its frames' signatures.
    pub(crate) fn id(&self) -> u16 {
        self.id
    }

    /// Longest frame in memory: bytes without FCS.
    pub(crate) fn max_len(&self) -> usize {
        self.template.len()
    }

    /// Mean size of its frames, FCS included: what a rate in bits a second is worked out with.
    pub(crate) fn mean_frame_bytes(&self) -> f64 {
        (self.template.len() + FCS_BYTES) as f64
    }

    /// What the display shows.
    pub(crate) fn view(&self) -> TemplateView {
        TemplateView {
            kind: "IPv4 / UDP".into(),
            ..TemplateView::default()
        }
    }

    /// Writes its next frames into `packets`, fresh ones of any length, one for each of `stamps` (the
    /// ticks at which each is to be sent). Sequence numbers go up from `first`.
    #[inline]
    pub(crate) fn write(&mut self, packets: &mut [Packet], stamps: &[u64], first: u64) {
        for ((packet, &stamp), sequence) in packets.iter_mut().zip(stamps).zip(first..) {
            packet.set_data(&self.template);
            let label = Label {
                stream: self.id,
                sequence,
                stamp,
            };
            let tail: Option<&mut [u8; SIGNATURE_BYTES]> = packet.data_mut().last_chunk_mut();
            label.write(tail.expect("templates have room for a signature"));
        }
    }
}
