//! The books of a run, for people and as JSON: who holds which slots, and who has lost a packet.

use linerate_core::run::ledger::{Account, Balance, Holder};
use serde::Serialize;
use serde_json::{Value, json};

use super::show::value;

/// What became of all packets, as it stands in the totals of a run.
#[derive(Debug, Serialize)]
pub struct Verdict {
    /// Packets that came to all pipelines.
    packets: u64,
    /// Whether each of them, and each slot, is accounted for.
    even: bool,
    /// Slots that nobody has.
    missing_slots: i64,
    /// Who has lost packets.
    lost: Vec<Lost>,
}

#[derive(Debug, Serialize)]
struct Lost {
    holder: String,
    packets: i64,
}

impl Verdict {
    /// Of these books.
    pub fn of(balance: &Balance) -> Self {
        let wrong = balance.accounts.iter();
        let wrong = wrong.filter(|account| account.lost != 0);
        Self {
            packets: balance.packets(),
            even: balance.is_even(),
            missing_slots: balance.missing,
            lost: wrong
                .map(|account| Lost {
                    holder: account.holder.clone(),
                    packets: account.lost,
                })
                .collect(),
        }
    }
}

/// Names who has lost a packet, where somebody has.
pub fn warn(balance: &Balance) {
    if !balance.is_even() {
        eprintln!("warning: {}", balance.verdict());
    }
}

#[derive(Serialize)]
struct Row<'a> {
    holder: &'a str,
    received: Option<u64>,
    sent: Option<u64>,
    dropped: Option<u64>,
    held: i64,
    /// Packets that came and are nowhere.
    lost: Option<i64>,
}

/// All holders, and in a line whether the books are even.
pub fn rows(balance: &Balance) -> (Vec<Value>, String) {
    let pools = json!({ "holder": "pools: free slots", "held": balance.free_shared });
    // What is in a ring both its ends say together.
    let rings: i64 = balance.accounts.iter().map(|account| account.passed).sum();
    let rings = json!({ "holder": "rings between lcores", "held": rings });
    let accounts = balance.accounts.iter().map(|account| value(row(account)));
    let rows = [pools, rings].into_iter().chain(accounts).collect();
    (rows, balance.verdict())
}

fn row(account: &Account) -> Row<'_> {
    let is = |kinds: &[Holder]| kinds.contains(&account.kind);
    let (whole, stage) = (is(&[Holder::Pipeline]), is(&[Holder::Stage]));
    let incoming = whole || stage || is(&[Holder::RxQueue]);
    let outgoing = whole || is(&[Holder::TxQueue]);
    // Of a ring the end that counts.
    let ring_in = is(&[Holder::Ring]) && account.received > 0;
    let ring_out = is(&[Holder::Ring]) && !ring_in;
    Row {
        holder: &account.holder,
        received: (incoming || ring_in).then_some(account.received),
        sent: (outgoing || ring_out).then_some(account.sent),
        dropped: (outgoing || ring_out).then_some(account.dropped),
        held: account.held,
        lost: (whole || stage).then_some(account.lost),
    }
}
