//! Two devices, joined by queues of frames in memory.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use smoltcp::time::Instant;

/// Bytes of a frame at most, without check sequence: 1448 of payload, as the other side has with
/// time stamps.
const FRAME: usize = 14 + 40 + 1448;

type Frames = Rc<RefCell<VecDeque<Vec<u8>>>>;

/// One end.
pub struct Wire {
    rx: Frames,
    tx: Frames,
    /// Frames that have been read, to be written anew.
    free: Frames,
    /// Frames that either end has sent.
    sent: Rc<Cell<u64>>,
}

/// Both ends.
pub fn pair() -> (Wire, Wire) {
    let (there, back, free) = (Frames::default(), Frames::default(), Frames::default());
    let sent = Rc::new(Cell::new(0));
    let end = |rx: &Frames, tx: &Frames| Wire {
        rx: rx.clone(),
        tx: tx.clone(),
        free: free.clone(),
        sent: sent.clone(),
    };
    (end(&back, &there), end(&there, &back))
}

impl Wire {
    /// Whether nothing waits to be received.
    pub fn is_quiet(&self) -> bool {
        self.rx.borrow().is_empty()
    }

    /// Frames that both ends have sent.
    pub fn sent(&self) -> u64 {
        self.sent.get()
    }
}

impl Device for Wire {
    type RxToken<'a> = RxToken<'a>;
    type TxToken<'a> = TxToken<'a>;

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = FRAME;
        // Checksums are computed and verified, which is the default.
        capabilities
    }

    fn receive(&mut self, _: Instant) -> Option<(RxToken<'_>, TxToken<'_>)> {
        let frame = self.rx.borrow_mut().pop_front()?;
        let Self { tx, free, sent, .. } = self;
        Some((RxToken { frame, free }, TxToken { tx, free, sent }))
    }

    fn transmit(&mut self, _: Instant) -> Option<TxToken<'_>> {
        let Self { tx, free, sent, .. } = self;
        Some(TxToken { tx, free, sent })
    }
}

/// A frame that has come.
pub struct RxToken<'a> {
    frame: Vec<u8>,
    free: &'a Frames,
}

impl phy::RxToken for RxToken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        let result = f(&self.frame);
        self.free.borrow_mut().push_back(self.frame);
        result
    }
}

/// Room for one to be sent.
pub struct TxToken<'a> {
    tx: &'a Frames,
    free: &'a Frames,
    sent: &'a Cell<u64>,
}

impl phy::TxToken for TxToken<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut frame = self.free.borrow_mut().pop_back().unwrap_or_default();
        // What was there before is written over.
        frame.resize(len, 0);
        let result = f(&mut frame);
        self.tx.borrow_mut().push_back(frame);
        self.sent.set(self.sent.get() + 1);
        result
    }
}
