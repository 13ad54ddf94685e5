//! What a `sysctl` below `net.ipv4` means to linerate's stack.

use super::OwnStack;
use crate::settings::DEFAULTS;
use linerate_stack::tcp::config::{EcnMode, FastOpenMode};
use linerate_stack::tcp::congestion::Algorithm;
use linerate_stack::tcp::mtu_search::MtuProbing;
use std::str::FromStr;

impl OwnStack {
    /// Sets it, for connections to come.
    ///
    /// # Errors
    /// Why it cannot be.
    pub(super) fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let settings = self.stack.settings();
        match name {
            "tcp_sack" => settings.sack = is_on(value)?,
            "tcp_timestamps" => settings.timestamps = is_on(value)?,
            "tcp_window_scaling" => settings.window_scaling = is_on(value)?,
            "tcp_ecn" => {
                settings.ecn = match value {
                    "0" => EcnMode::Off,
                    "1" => EcnMode::Request,
                    "2" => EcnMode::Accept,
                    _ => return Err("0, 1 and 2 are known".into()),
                }
            }
            "tcp_recovery" => settings.rack = number::<u32>(value)? & 1 != 0,
            "tcp_early_retrans" => settings.loss_probes = is_on(value)?,
            "tcp_frto" => settings.frto = is_on(value)?,
            "tcp_congestion_control" => {
                let algorithm = Algorithm::from_name(value);
                settings.algorithm = algorithm.ok_or("there is no such algorithm")?;
            }
            "tcp_slow_start_after_idle" => settings.slow_start_after_idle = is_on(value)?,
            "tcp_syn_retries" => settings.syn_retries = number(value)?,
            "tcp_synack_retries" => settings.syn_ack_retries = number(value)?,
            "tcp_mtu_probing" => {
                settings.mtu_probing = match value {
                    "0" => MtuProbing::Off,
                    "1" => MtuProbing::BlackHole,
                    "2" => MtuProbing::On,
                    _ => return Err("0, 1 and 2 are known".into()),
                }
            }
            "tcp_retries1" => settings.retries1 = number(value)?,
            "tcp_retries2" => settings.retries = number(value)?,
            "tcp_orphan_retries" => settings.orphan_retries = number(value)?,
            "tcp_fin_timeout" => {
                let seconds: u32 = number(value)?;
                settings.fin_timeout_ms = seconds.saturating_mul(1000);
            }
            "tcp_keepalive_time" => settings.keep_idle_s = number(value)?,
            "tcp_keepalive_intvl" => settings.keep_interval_s = number(value)?,
            "tcp_keepalive_probes" => settings.keep_count = number(value)?,
            "tcp_rmem" => {
                let [_, default, most] = three(value)?;
                // Linux counts its own overhead as well, and takes half for that; its first window
                // is what a SYN can say without a scale, at most.
                let first = (default / 2).min(u16::MAX.into());
                (settings.receive_bytes, settings.receive_bytes_max) = (first, most);
            }
            "tcp_wmem" => settings.send_bytes_max = three(value)?[2],
            "tcp_syncookies" => {
                self.only_cookies = match value {
                    "1" => false,
                    "2" => true,
                    _ => return Err("a flood is always answered with cookies".into()),
                }
            }
            "tcp_fastopen" => {
                let bits = bits(value)?;
                settings.fast_open = FastOpenMode {
                    client: bits & 1 != 0,
                    server: bits & 2 != 0,
                    server_without_cookie: bits & 0x200 != 0,
                };
                self.is_fast_open_for_all = bits & 0x400 != 0;
                if bits & 4 != 0 {
                    return Err("without a cookie no SYN has data".into());
                }
            }
            "tcp_no_metrics_save" => settings.path_metrics = !is_on(value)?,
            // RFC 1337 3, fix F1: resets never end TIME-WAIT here.
            "tcp_rfc1337" if is_on(value)? => {}
            // Into how large frames segments are put, which none of ours are.
            "tcp_min_tso_segs" | "tcp_tso_win_divisor" => {}
            // Each timeout of a SYN is twice the one before (RFC 6298 5.5).
            "tcp_syn_linear_timeouts" if value == "0" => {}
            // What is as all scripts start is no change, whether there is such a setting or not.
            _ if DEFAULTS.contains(&(name, value)) => {}
            _ => return Err("linerate's stack has no such setting".into()),
        }
        Ok(())
    }
}

/// Bits of a word that is written in tens or sixteens.
fn bits(value: &str) -> Result<u32, String> {
    match value.trim().strip_prefix("0x") {
        Some(digits) => {
            let wrong = |_| format!("{value:?} is no number that fits");
            u32::from_str_radix(digits, 16).map_err(wrong)
        }
        None => number(value),
    }
}

fn is_on(value: &str) -> Result<bool, String> {
    number::<u32>(value).map(|value| value != 0)
}

fn number<T: FromStr>(value: &str) -> Result<T, String> {
    let wrong = |_| format!("{value:?} is no number that fits");
    value.trim().parse().map_err(wrong)
}

/// The least, the first and the largest size of a buffer, in bytes.
fn three(value: &str) -> Result<[u32; 3], String> {
    let sizes: Result<Vec<u32>, String> = value.split_whitespace().map(number).collect();
    let wrong = |_| "write three sizes in bytes".to_owned();
    sizes?.try_into().map_err(wrong)
}
