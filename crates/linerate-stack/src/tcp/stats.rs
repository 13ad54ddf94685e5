//! What happened to all connections of a stack: plain counters, that one lcore writes.

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of a stack's TCP.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Stats {
            /// The counters with their names, in their order.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// Adds another lcore's.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

stats! {
    /// Segments received.
    segments_in,
    /// Segments and unsegmented frames sent.
    segments_out,
    /// Payload bytes received in order.
    bytes_in,
    /// Payload bytes sent for the first time.
    bytes_out,
    /// Connections opened here.
    opened_active,
    /// Connections opened by peers.
    opened_passive,
    /// Connections that became established.
    established,
    /// Resets sent.
    resets_out,
    /// Resets accepted.
    resets_in,
    /// Frames sent again.
    retransmitted,
    /// Retransmissions that were lost as well.
    lost_retransmissions,
    /// Fast recoveries.
    recoveries,
    /// Timeouts.
    timeouts,
    /// Timeouts that F-RTO found to have been too early.
    spurious_timeouts,
    /// Reductions of the window that were undone.
    undone,
    /// Loss probes sent.
    loss_probes,
    /// Losses that they repaired.
    loss_probe_recoveries,
    /// Segments that were overtaken.
    reordered,
    /// D-SACKs received.
    dsacks,
    /// SACK blocks that cannot be true.
    bad_sacks,
    /// Peers that dropped what they had acknowledged by SACK.
    reneged,
    /// ACKs of what was never sent.
    acks_of_nothing,
    /// ACKs older than any window.
    old_acks,
    /// ACKs that a timer sent.
    delayed_acks,
    /// Challenge ACKs (RFC 5961).
    challenges,
    /// Segments that were too old by their time stamps (RFC 7323 5).
    too_old,
    /// Segments outside the window.
    out_of_window,
    /// Segments kept out of order.
    out_of_order,
    /// Segments without room.
    no_room,
    /// Window probes sent.
    window_probes,
    /// Keepalive probes sent.
    keepalives,
    /// Times that as many retransmissions as R1 were not answered.
    unanswered,
    /// ICMP errors that were believed and ended nothing.
    soft_errors,
    /// Times that segments became shorter since none was acknowledged (RFC 4821 7.7).
    mtu_black_holes,
    /// Probes of the path's MTU sent.
    mtu_probes,
    /// Those that arrived.
    mtu_probes_arrived,
    /// Those that were lost, and nothing else.
    mtu_probes_lost,
    /// Connections given up since nobody answered.
    given_up,
    /// Times that there was no slot for what was to be sent.
    no_slots,
    /// Data that came for connections that nobody reads any more.
    data_after_close,
    /// Segments that had met congestion.
    ce_in,
    /// Connections opened here whose SYN's data was taken (RFC 7413).
    fast_open_active,
    /// Connections opened here whose SYN's data was not.
    fast_open_active_refused,
    /// Connections opened by peers that had the data of their SYN at once.
    fast_open_passive,
    /// SYNs whose cookie was wrong.
    fast_open_bad_cookies,
    /// Cookies given.
    fast_open_cookies_given,
    /// SYNs with data that had to wait for their handshake, since too many others did.
    fast_open_overflow,
}
